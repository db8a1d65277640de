//! The suite for stores, on the servers that `RATELIMIT_MEMCACHED_URL` names (`memcached://host:port[,host:port]`).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_core::{
    Answer, Claims, CounterStore, DynCounterStore, Meter, MeterId, Promises, Refund, StoreError, Timestamp,
};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const VARIABLE: &str = "RATELIMIT_MEMCACHED_URL";

fn main() -> ExitCode {
    let Ok(url) = std::env::var(VARIABLE) else {
        eprintln!("set {VARIABLE} to memcached://host:port");
        return ExitCode::FAILURE;
    };
    let config = MemcachedConfig { timeout: Duration::from_secs(5), ..MemcachedConfig::new(&url) };
    ratelimit_conformance::main(vec![Box::new(Memcached { config })])
}

struct Memcached {
    config: MemcachedConfig,
}

/// A prefix that nobody else uses.
struct OwnPrefix(MemcachedConfig, Arc<Known>);

#[async_trait]
impl Subject for Memcached {
    fn name(&self) -> &str {
        if self.config.servers.len() == 1 { "memcached" } else { "memcached-pair" }
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let random = RandomState::new().hash_one(std::process::id());
        let prefix = format!("t{random:x}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Arc::new(OwnPrefix(MemcachedConfig { prefix, ..self.config.clone() }, Arc::default())))
    }
}

#[async_trait]
impl Space for OwnPrefix {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let store = MemcachedStore::connect_with(self.0.clone()).await?;
        Ok(Arc::new(Knowing { store, known: self.1.clone() }))
    }

    fn address(&self) -> Option<SocketAddr> {
        match self.0.servers.as_slice() {
            [one] => one.parse().ok(),
            _ => None,
        }
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let config = MemcachedConfig { servers: vec![address.to_string()], ..self.0.clone() };
        let store = MemcachedStore::connect_with(config).await?;
        Ok(Arc::new(Knowing { store, known: self.1.clone() }))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let mut names = HashSet::new();
        for server in &self.0.servers {
            for key in keys(server).await? {
                if key.starts_with(&format!("{}%21", self.0.prefix))
                    || key.starts_with(&format!("{}%23", self.0.prefix))
                {
                    // Without the number of the segment: a window is one meter.
                    let parts: Vec<&str> = key.split("%21").collect();
                    let named = parts.len().min(if key.contains("%23") { 1 } else { 4 });
                    names.insert(parts[..named].join("!"));
                }
            }
        }
        Ok(Some(names.len() as u64))
    }
}

/// The keys of a server, as it lists them: percent-encoded.
async fn keys(server: &str) -> Result<Vec<String>, BoxError> {
    loop {
        let mut stream = BufReader::new(TcpStream::connect(server).await?);
        stream.write_all(b"lru_crawler metadump all\r\n").await?;
        let mut keys = Vec::new();
        let mut lines = stream.lines();
        while let Some(line) = lines.next_line().await? {
            if line == "END" {
                return Ok(keys);
            }
            if line.starts_with("BUSY") || line.contains("locked") {
                break;
            }
            let key = line.strip_prefix("key=").and_then(|rest| rest.split(' ').next());
            keys.push(key.ok_or("not a key")?.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The meters that were claimed in a space, and the newest instant.
#[derive(Debug, Default)]
struct Known(Mutex<(HashMap<Vec<u8>, Meter>, Timestamp)>);

/// The store, with a reset that knows the meters which were claimed: [`CounterStore::reset`] does not tell how they count.
#[derive(Debug)]
struct Knowing {
    store: MemcachedStore,
    known: Arc<Known>,
}

impl Knowing {
    fn learn(&self, claims: &Claims<'_>) {
        let mut known = self.known.0.lock().unwrap();
        known.1 = claims.now();
        known.0.extend(claims.iter().map(|claim| (claim.id.to_bytes(), claim.meter)));
    }
}

impl CounterStore for Knowing {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.learn(&claims);
        self.store.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        slices.iter().for_each(|claims| self.learn(claims));
        self.store.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.store.refund(now, refunds).await
    }

    async fn reset(&self, meters: &[MeterId<'_>]) -> Result<(), StoreError> {
        let (meters, now): (Vec<_>, _) = {
            let known = self.known.0.lock().unwrap();
            let meter = |id: &MeterId<'_>| known.0.get(&id.to_bytes()).copied();
            (meters.iter().filter_map(|id| Some((*id, meter(id)?))).collect(), known.1)
        };
        self.store.forget(now, &meters).await
    }
}
