//! The suite for stores, on this crate's in their one-node form: memory or Redis underneath, and all handles on one node.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_cluster::{Hub, InProcess, Leased, Replicated, Synced};
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_core::clock::Timer;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{Clock, CounterStore, DynCounterStore, StoreError, SystemClock, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::{Asked, Server, Testbed, Unavailable};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let asked = Asked::from_args(&["leased", "leased-redis", "synced", "synced-redis", "replicated"]);
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(OneNode { name: "leased", make: leased }),
        Box::new(OneNode { name: "synced", make: synced }),
        Box::new(Alone),
    ];
    // A server that no target needs is not started.
    if asked.has("leased-redis") || asked.has("synced-redis") {
        let server = Arc::new(runtime.block_on(Testbed::from_env().redis()));
        subjects.push(Box::new(OnRedis { name: "leased-redis", make: leased, server: server.clone() }));
        subjects.push(Box::new(OnRedis { name: "synced-redis", make: synced, server }));
    }
    ratelimit_conformance::main(subjects)
}

/// A node, and how many meters it keeps by itself.
struct Node {
    store: Arc<dyn DynCounterStore>,
    kept: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Whether the shared store keeps a meter for each of the node's; otherwise it has several for the segments of one
    /// window, which end in their own time.
    is_alike: bool,
}

fn leased<S: CounterStore + 'static>(shared: S) -> Node {
    Node { store: Arc::new(Leased::new(shared)), kept: Box::new(|| 0), is_alike: true }
}

fn synced<S: CounterStore + 'static>(shared: S) -> Node {
    let store = Arc::new(EachTime(Arc::new(Synced::new(shared))));
    let kept = store.clone();
    Node { store, kept: Box::new(move || kept.0.len() as u64), is_alike: false }
}

/// A node that synchronizes with the shared store after each claim, and so replaces its state by the reading. On a task, as
/// always: a caller that drops its claim does not end it.
#[derive(Debug)]
struct EachTime<S>(Arc<Synced<S>>);

impl<S: CounterStore + 'static> EachTime<S> {
    async fn sync(&self, now: Timestamp) -> Result<(), StoreError> {
        let node = self.0.clone();
        tokio::spawn(async move { node.sync(now).await }).await.expect("no panic")
    }
}

impl<S: CounterStore + 'static> CounterStore for EachTime<S> {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.0.claim(claims).await?;
        self.sync(claims.now()).await?;
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.0.refund(now, refunds).await?;
        self.sync(now).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

/// One node on a shared store in memory.
struct OneNode {
    name: &'static str,
    make: fn(Arc<MemoryStore>) -> Node,
}

struct OnMemory {
    shared: Arc<MemoryStore>,
    node: Node,
}

#[async_trait]
impl Subject for OneNode {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        let shared = Arc::new(MemoryStore::new());
        Ok(Arc::new(OnMemory { node: (self.make)(shared.clone()), shared }))
    }
}

#[async_trait]
impl Space for OnMemory {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.node.store.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let shared = if self.node.is_alike { self.shared.len() as u64 } else { 0 };
        Ok(Some(shared + (self.node.kept)()))
    }
}

/// One node on a Redis server.
struct OnRedis {
    name: &'static str,
    make: fn(RedisStore) -> Node,
    server: Arc<Result<Server, Unavailable>>,
}

struct RedisNode {
    node: Node,
    url: String,
    prefix: String,
}

#[async_trait]
impl Subject for OnRedis {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let server = self.server.as_ref().as_ref().map_err(ToString::to_string)?;
        let prefix = format!("{}-{}-{}:", self.name, std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let config =
            RedisConfig::from_url(server.url())?.prefix(prefix.clone()).timeout(Duration::from_secs(3));
        let node = (self.make)(RedisStore::connect_with(config).await?);
        Ok(Arc::new(RedisNode { node, url: server.url().to_owned(), prefix }))
    }

    fn unavailable(&self) -> Option<String> {
        Some(self.server.as_ref().as_ref().err()?.to_string())
    }
}

#[async_trait]
impl Space for RedisNode {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.node.store.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        if !self.node.is_alike {
            return Ok(Some((self.node.kept)()));
        }
        let client = redis::Client::open(self.url.as_str())?;
        // Not the client's half second: a machine may be busy.
        let config =
            redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let (mut cursor, mut found) = (0_u64, 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{}*", self.prefix)).arg("COUNT").arg(1_000);
            let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(&mut connection).await?;
            found += keys.len() as u64;
            cursor = next;
            if cursor == 0 {
                return Ok(Some(found));
            }
        }
    }
}

/// The clock of a node that broadcasts: before all cases, which have clocks of their own.
struct Early(SystemClock);

impl Clock for Early {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

impl Timer for Early {
    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

/// A node that broadcasts its charges without any peers.
struct Alone;

struct Speaker {
    node: Arc<Replicated<InProcess>>,
    task: tokio::task::JoinHandle<()>,
}

#[async_trait]
impl Subject for Alone {
    fn name(&self) -> &str {
        "replicated"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        let node = Arc::new(Replicated::new(Hub::new().transport()));
        let run = {
            let node = node.clone();
            async move { node.run(Early(SystemClock::new()), Duration::from_millis(5)).await }
        };
        Ok(Arc::new(Speaker { node, task: tokio::spawn(run) }))
    }
}

#[async_trait]
impl Space for Speaker {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.node.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.node.len() as u64))
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
