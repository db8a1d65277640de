//! The conformance suite on this store: one server with and without shared calls, the server's clock, a cluster, a primary
//! that sentinels watch, TLS; and on connections and pools that the program already has.

#[path = "common/ways.rs"]
mod ways;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Server, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_core::layers::BatchConfig;
use ratelimit_redis::{RedisConfig, RedisStore, Time};
use ratelimit_testbed::{Asked, Cluster, OtherVersion, REDIS_VERSIONS, Sentinel, Testbed, Unavailable};
use ways::Way;

/// Longer than any call takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(6);

/// Longer than a call with thousands of claims takes on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

/// The sentinels must not replace a primary during the suite: charges that the replica has not received would be lost.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let subjects = runtime.block_on(subjects(&Testbed::from_env()));
    ratelimit_conformance::main(
        subjects.into_iter().map(|subject| Box::new(subject) as Box<dyn Subject>).collect(),
    )
}

/// Targets on one server, and on a cluster.
const SINGLE: [&str; 6] = [
    "redis",
    "redis-direct",
    "redis-server-clock",
    "redis-connection",
    "redis-connection-manager",
    "redis-pool",
];
const SPREAD: [&str; 3] = ["redis-cluster", "redis-cluster-connection", "redis-cluster-pool"];

/// The other targets on the usual version.
const OTHERS: [&str; 4] = ["redis-sentinel", "redis-sentinel-pool", "redis-tls", "redis-cluster-tls"];

/// The requested targets. A server that none of them needs is not started.
async fn subjects(testbed: &Testbed) -> Vec<Redis> {
    let versions = REDIS_VERSIONS.each_ref().map(OtherVersion::name);
    let asked = Asked::from_args(&[&SINGLE[..], &SPREAD, &OTHERS, &versions].concat());
    let on = |name, target, settings| Redis { name, way: Way::Own, target: Arc::new(target), settings };
    let mut subjects = Vec::new();
    if SINGLE.iter().any(|name| asked.has(name)) {
        let server = testbed.redis().await.map(Target::Single);
        let plain = on("redis", server, |config| config.batch(always()));
        let over = |name, way| Redis { name, way, ..plain.clone() };
        subjects.extend([
            plain.clone(),
            Redis { name: "redis-direct", settings: |config| config.batch(None), ..plain.clone() },
            Redis {
                name: "redis-server-clock",
                settings: |config| config.time(Time::Server),
                ..plain.clone()
            },
            over("redis-connection", Way::Connection),
            over("redis-connection-manager", Way::Manager),
            #[cfg(feature = "deadpool")]
            over("redis-pool", Way::Pool),
        ]);
    }
    if SPREAD.iter().any(|name| asked.has(name)) {
        let cluster = testbed.redis_cluster().await.map(Target::Cluster);
        let plain = on("redis-cluster", cluster, |config| config.batch(always()));
        subjects.extend([
            plain.clone(),
            Redis { name: "redis-cluster-connection", way: Way::ClusterConnection, ..plain.clone() },
            #[cfg(feature = "deadpool")]
            Redis { name: "redis-cluster-pool", way: Way::ClusterPool, ..plain.clone() },
        ]);
    }
    if asked.has("redis-sentinel") || asked.has("redis-sentinel-pool") {
        let sentinel = testbed.redis_sentinel(PATIENCE).await.map(Target::Sentinel);
        let plain = on("redis-sentinel", sentinel, |config| config);
        subjects.extend([
            plain.clone(),
            #[cfg(feature = "deadpool")]
            Redis { name: "redis-sentinel-pool", way: Way::SentinelPool, ..plain },
        ]);
    }
    #[cfg(feature = "tls")]
    if asked.has("redis-tls") || asked.has("redis-cluster-tls") {
        subjects.extend(tls::subjects(testbed).await);
    }
    for version in REDIS_VERSIONS.iter().filter(|version| asked.names(version.name())) {
        let server = testbed.redis_version(version).await.map(Target::Single);
        subjects.push(on(version.name(), server, |config| config.batch(always())));
    }
    subjects
}

/// Shares calls even among few checks: unshared calls are covered by the targets without sharing.
fn always() -> Option<BatchConfig> {
    Some(BatchConfig::default().unbatched(0))
}

enum Target {
    Single(ratelimit_testbed::Server),
    Cluster(Cluster),
    Sentinel(Sentinel),
}

#[derive(Clone)]
struct Redis {
    name: &'static str,
    way: Way,
    target: Arc<Result<Target, Unavailable>>,
    settings: fn(RedisConfig) -> RedisConfig,
}

/// A key prefix that nothing else uses.
struct Prefix {
    way: Way,
    target: Arc<Result<Target, Unavailable>>,
    config: RedisConfig,
    /// The address of each server.
    servers: Vec<String>,
    settings: fn(RedisConfig) -> RedisConfig,
}

#[async_trait]
impl Subject for Redis {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (url, servers) = match &*self.target {
            Ok(Target::Single(server)) => (server.url().to_owned(), vec![server.url().to_owned()]),
            Ok(Target::Cluster(cluster)) => (cluster.url(), cluster.urls()),
            Ok(Target::Sentinel(sentinel)) => (sentinel.url(), vec![sentinel.url()]),
            Err(unavailable) => return Err(unavailable.to_string().into()),
        };
        let prefix = format!("conformance-{}-{}:", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let settings = self.settings;
        let config = settings(RedisConfig::from_url(&url)?.prefix(prefix).timeout(TIMEOUT));
        Ok(Arc::new(Prefix { way: self.way, target: self.target.clone(), config, servers, settings }))
    }

    fn unavailable(&self) -> Option<String> {
        Some(self.target.as_ref().as_ref().err()?.to_string())
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        match self.target.as_ref().as_ref().ok()? {
            Target::Single(server) if server.is_controlled() => Some(Arc::new(server.clone())),
            Target::Cluster(cluster) if cluster.is_controlled() => Some(Arc::new(cluster.clone())),
            Target::Sentinel(sentinel) => Some(Arc::new(sentinel.clone())),
            _ => None,
        }
    }

    fn reconnects(&self) -> bool {
        self.way != Way::Connection
    }
}

#[async_trait]
impl Space for Prefix {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(Arc::new(self.way.open(&self.config, &self.servers).await?))
    }

    async fn open_patient(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(Arc::new(self.way.open(&self.config.clone().timeout(PATIENT), &self.servers).await?))
    }

    fn address(&self) -> Option<SocketAddr> {
        match self.target.as_ref().as_ref().ok()? {
            // A pool sends a `PING` between calls.
            #[cfg(feature = "deadpool")]
            Target::Single(_) if self.way == Way::Pool => None,
            Target::Single(server) => Some(server.address()),
            // Clients connect to the addresses that nodes and sentinels report, bypassing a proxy.
            Target::Cluster(_) | Target::Sentinel(_) => None,
        }
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let url = &self.servers[0];
        let (scheme, log_in) = url.split_once("://").ok_or("an address without a scheme")?;
        let log_in = log_in.rsplit_once('@').map(|(log_in, _)| format!("{log_in}@")).unwrap_or_default();
        if self.way != Way::Own {
            // The first call on a server sends the scripts; a store with its own client loads them when it connects.
            RedisStore::connect_with(self.config.clone()).await?;
        }
        let url = format!("{scheme}://{log_in}{address}/");
        let config = RedisConfig::from_url(&url)?.prefix(self.config.prefix.clone()).timeout(TIMEOUT);
        Ok(Arc::new(self.way.open(&(self.settings)(config), &[url]).await?))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let urls = match self.target.as_ref() {
            Ok(Target::Sentinel(sentinel)) => vec![sentinel.primary().await?.url().to_owned()],
            _ => self.servers.clone(),
        };
        let mut meters = 0;
        for url in &urls {
            meters += count(client(url, &self.config)?, &self.config.prefix).await?;
        }
        Ok(Some(meters))
    }
}

/// How many keys of a node begin with `prefix`.
async fn count(client: redis::Client, prefix: &str) -> Result<u64, BoxError> {
    let mut connection = ways::connection(client).await?;
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

#[cfg(not(feature = "tls"))]
fn client(url: &str, _config: &RedisConfig) -> redis::RedisResult<redis::Client> {
    redis::Client::open(url)
}

#[cfg(feature = "tls")]
use tls::client;

/// Over TLS: one server, and a cluster that asks for certificates.
#[cfg(feature = "tls")]
mod tls {
    use std::sync::OnceLock;

    use ratelimit_testbed::{Certificates, Redis as Server, Tls};

    use super::*;

    /// Less than the ten seconds of the suite, after which a call counts as hanging.
    const TLS_TIMEOUT: Duration = Duration::from_secs(8);

    /// The certificates for the settings of these targets.
    static CERTIFICATES: OnceLock<[Vec<u8>; 3]> = OnceLock::new();

    pub(super) async fn subjects(testbed: &Testbed) -> [Redis; 2] {
        let tls = Tls::new(Certificates::new().expect("certificates"));
        let files = [tls.certificates.authority(), tls.certificates.client(), tls.certificates.client_key()];
        CERTIFICATES.get_or_init(|| files.map(|file| std::fs::read(file).expect("a certificate")));
        let server = Server { tls: Some(tls.clone()), ..Server::default() };
        let node = Server { tls: Some(Tls { asks_clients: true, ..tls }), ..Server::default() };
        let single = testbed.redis_with(server).await.map(Target::Single);
        let cluster = testbed.redis_cluster_with(node).await.map(Target::Cluster);
        let subject = |name, target| Redis { name, way: Way::Own, target: Arc::new(target), settings };
        [subject("redis-tls", single), subject("redis-cluster-tls", cluster)]
    }

    fn settings(mut config: RedisConfig) -> RedisConfig {
        if let Some([authority, certificate, key]) = CERTIFICATES.get() {
            config.batch = None;
            // Without optimisation, hundreds of encrypted calls in sequence take seconds on a busy machine.
            config.timeout = TLS_TIMEOUT;
            config.authorities = Some(authority.clone());
            config.client_certificate = Some(certificate.clone());
            config.client_key = Some(key.clone());
        }
        config
    }

    pub(super) fn client(url: &str, config: &RedisConfig) -> redis::RedisResult<redis::Client> {
        let client_tls = CERTIFICATES.get().map(|[_, certificate, key]| redis::ClientTlsConfig {
            client_cert: certificate.clone(),
            client_key: key.clone(),
        });
        match &config.authorities {
            Some(authority) => {
                let root_cert = Some(authority.clone());
                redis::Client::build_with_tls(url, redis::TlsCertificates { client_tls, root_cert })
            }
            None => redis::Client::open(url),
        }
    }
}
