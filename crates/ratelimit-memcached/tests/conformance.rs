//! The suite for stores, on the servers that `RATELIMIT_MEMCACHED_URL` names (`memcached://host:port[,host:port]`).

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_core::DynCounterStore;
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
struct OwnPrefix(MemcachedConfig);

#[async_trait]
impl Subject for Memcached {
    fn name(&self) -> &str {
        if self.config.servers.len() == 1 { "memcached" } else { "memcached-pair" }
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let random = RandomState::new().hash_one(std::process::id());
        let prefix = format!("t{random:x}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Arc::new(OwnPrefix(MemcachedConfig { prefix, ..self.config.clone() })))
    }
}

#[async_trait]
impl Space for OwnPrefix {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(Arc::new(MemcachedStore::connect_with(self.0.clone()).await?))
    }

    fn address(&self) -> Option<SocketAddr> {
        match self.0.servers.as_slice() {
            [one] => one.parse().ok(),
            _ => None,
        }
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let config = MemcachedConfig { servers: vec![address.to_string()], ..self.0.clone() };
        Ok(Arc::new(MemcachedStore::connect_with(config).await?))
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
