//! The suite for stores, on this one: one server with shared calls and without, the server's clock, a cluster.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Server, Space, Subject};
use ratelimit_core::{BatchConfig, DynCounterStore};
use ratelimit_redis::{RedisConfig, RedisStore, TimeSource};
use ratelimit_testbed::{Cluster, Testbed, Unavailable};

/// Longer than a machine that is busy with something else takes for a call.
const TIMEOUT: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let testbed = Testbed::from_env();
    let single = runtime.block_on(testbed.redis()).map(Target::Single);
    let single = Arc::new(single);
    let cluster = Arc::new(runtime.block_on(testbed.redis_cluster()).map(Target::Cluster));
    ratelimit_conformance::main(vec![
        Box::new(Redis {
            name: "redis",
            target: single.clone(),
            settings: |config| RedisConfig { batch: always(), ..config },
        }),
        Box::new(Redis {
            name: "redis-direct",
            target: single.clone(),
            settings: |config| RedisConfig { batch: None, ..config },
        }),
        Box::new(Redis {
            name: "redis-server-clock",
            target: single,
            settings: |config| RedisConfig { time: TimeSource::Server, ..config },
        }),
        Box::new(Redis { name: "redis-cluster", target: cluster, settings: |config| config }),
    ])
}

/// Calls are shared however few checks there are: those that are not go as they go without sharing.
fn always() -> Option<BatchConfig> {
    Some(BatchConfig { alone: 0, ..BatchConfig::default() })
}

enum Target {
    Single(ratelimit_testbed::Server),
    Cluster(Cluster),
}

struct Redis {
    name: &'static str,
    target: Arc<Result<Target, Unavailable>>,
    settings: fn(RedisConfig) -> RedisConfig,
}

/// A key prefix that nobody else uses.
struct Prefix {
    target: Arc<Result<Target, Unavailable>>,
    config: RedisConfig,
}

#[async_trait]
impl Subject for Redis {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let urls = match &*self.target {
            Ok(Target::Single(server)) => vec![server.url().to_owned()],
            Ok(Target::Cluster(cluster)) => cluster.urls(),
            Err(unavailable) => return Err(unavailable.to_string().into()),
        };
        let prefix = format!("conformance-{}-{}:", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let config = RedisConfig { urls, prefix, timeout: TIMEOUT, ..RedisConfig::default() };
        Ok(Arc::new(Prefix { target: self.target.clone(), config: (self.settings)(config) }))
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        match self.target.as_ref().as_ref().ok()? {
            Target::Single(server) if server.is_controlled() => Some(Arc::new(server.clone())),
            Target::Cluster(cluster) if cluster.is_controlled() => Some(Arc::new(cluster.clone())),
            _ => None,
        }
    }
}

#[async_trait]
impl Space for Prefix {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let store = match &*self.target {
            Ok(Target::Cluster(_)) => RedisStore::connect_cluster(self.config.clone()).await?,
            _ => RedisStore::connect_with(self.config.clone()).await?,
        };
        Ok(Arc::new(store))
    }

    fn address(&self) -> Option<SocketAddr> {
        match self.target.as_ref().as_ref().ok()? {
            Target::Single(server) => Some(server.address()),
            // A client of a cluster goes where the nodes say that they are, past any go-between.
            Target::Cluster(_) => None,
        }
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let url = &self.config.urls[0];
        let (_, log_in) = url.split_once("://").ok_or("an address without a scheme")?;
        let log_in = log_in.rsplit_once('@').map(|(log_in, _)| format!("{log_in}@")).unwrap_or_default();
        let urls = vec![format!("redis://{log_in}{address}/")];
        Ok(Arc::new(RedisStore::connect_with(RedisConfig { urls, ..self.config.clone() }).await?))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let mut meters = 0;
        for url in &self.config.urls {
            meters += count(url, &self.config.prefix).await?;
        }
        Ok(Some(meters))
    }
}

/// How many keys of a node begin with `prefix`.
async fn count(url: &str, prefix: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let (mut cursor, mut found) = (0u64, 0);
    loop {
        let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{prefix}*"))
            .arg("COUNT")
            .arg(1_000)
            .query_async(&mut connection)
            .await?;
        found += keys.len() as u64;
        cursor = next;
        if cursor == 0 {
            return Ok(found);
        }
    }
}
