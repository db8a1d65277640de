//! The suite for stores, on this crate's in their one-node form: memory or Redis underneath, and all handles on one node.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_cluster::Leased;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_memory::MemoryStore;
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::{Server, Testbed, Unavailable};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Testbed::from_env().redis());
    ratelimit_conformance::main(vec![
        Box::new(OneNode { name: "leased", make: |shared| Arc::new(Leased::new(shared)) }),
        Box::new(OnRedis(server)),
    ])
}

type Make = fn(Arc<MemoryStore>) -> Arc<dyn DynCounterStore>;

/// One node on a shared store.
struct OneNode {
    name: &'static str,
    make: Make,
}

struct Node {
    shared: Arc<MemoryStore>,
    node: Arc<dyn DynCounterStore>,
}

#[async_trait]
impl Subject for OneNode {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        let shared = Arc::new(MemoryStore::new());
        Ok(Arc::new(Node { node: (self.make)(shared.clone()), shared }))
    }
}

#[async_trait]
impl Space for Node {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.node.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.shared.len() as u64))
    }
}

/// One node on a Redis server.
struct OnRedis(Result<Server, Unavailable>);

struct RedisNode {
    node: Arc<dyn DynCounterStore>,
    url: String,
    prefix: String,
}

#[async_trait]
impl Subject for OnRedis {
    fn name(&self) -> &str {
        "leased-redis"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let server = self.0.as_ref().map_err(ToString::to_string)?;
        let prefix = format!("leased-{}-{}:", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let urls = vec![server.url().to_owned()];
        let config = RedisConfig {
            urls,
            prefix: prefix.clone(),
            timeout: Duration::from_secs(3),
            ..RedisConfig::default()
        };
        let store = RedisStore::connect_with(config).await?;
        Ok(Arc::new(RedisNode { node: Arc::new(Leased::new(store)), url: server.url().to_owned(), prefix }))
    }
}

#[async_trait]
impl Space for RedisNode {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.node.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let client = redis::Client::open(self.url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
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
