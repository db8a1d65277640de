//! The suite for stores, on this one: one server, and two that share the keys.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Server, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_testbed::{Group, Testbed, Unavailable};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Longer than a machine that is busy with something else takes for a call.
const TIMEOUT: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let testbed = Testbed::from_env();
    let single = runtime.block_on(testbed.memcached()).map(Target::Single);
    let pair = runtime.block_on(testbed.memcached_pair()).map(Target::Pair);
    ratelimit_conformance::main(vec![
        Box::new(Memcached { name: "memcached", target: Arc::new(single) }),
        Box::new(Memcached { name: "memcached-pair", target: Arc::new(pair) }),
    ])
}

enum Target {
    Single(ratelimit_testbed::Server),
    Pair(Group),
}

struct Memcached {
    name: &'static str,
    target: Arc<Result<Target, Unavailable>>,
}

/// A prefix that nobody else uses.
struct Prefix {
    config: MemcachedConfig,
    addresses: Vec<SocketAddr>,
}

impl Target {
    fn servers(&self) -> &[ratelimit_testbed::Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Pair(pair) => pair.servers(),
        }
    }
}

#[async_trait]
impl Subject for Memcached {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let target = self.target.as_ref().as_ref().map_err(ToString::to_string)?;
        let addresses: Vec<_> = target.servers().iter().map(ratelimit_testbed::Server::address).collect();
        let prefix = format!("conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let servers = addresses.iter().map(ToString::to_string).collect();
        let config = MemcachedConfig { servers, prefix, timeout: TIMEOUT, ..MemcachedConfig::default() };
        Ok(Arc::new(Prefix { config, addresses }))
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        match self.target.as_ref().as_ref().ok()? {
            Target::Single(server) if server.is_controlled() => Some(Arc::new(server.clone())),
            Target::Pair(pair) if pair.is_controlled() => Some(Arc::new(pair.clone())),
            _ => None,
        }
    }
}

#[async_trait]
impl Space for Prefix {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(Arc::new(MemcachedStore::connect_with(self.config.clone()).await?))
    }

    fn address(&self) -> Option<SocketAddr> {
        match self.addresses.as_slice() {
            [one] => Some(*one),
            // One go-between cannot lead to two servers.
            _ => None,
        }
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let config = MemcachedConfig { servers: vec![address.to_string()], ..self.config.clone() };
        Ok(Arc::new(MemcachedStore::connect_with(config).await?))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let mut names = HashSet::new();
        for server in &self.addresses {
            let mut keys = keys(*server).await?;
            keys.retain(|key| key.starts_with(&self.config.prefix));
            let counting = counting(*server, keys).await?;
            names.extend(counting.iter().filter_map(|key| meter(key, &self.config.prefix)));
        }
        Ok(Some(names.len() as u64))
    }
}

/// The meter that an item with this key belongs to: the counters of a window are one meter.
fn meter(key: &str, prefix: &str) -> Option<String> {
    let rest = key.strip_prefix(prefix)?;
    let parts = match rest.get(..1)? {
        "!" => 4,
        "#" => 1,
        _ => return None,
    };
    Some(rest.split('!').take(parts).collect::<Vec<_>>().join("!"))
}

/// Those of these keys under which there is more than a reset's mark, which stands for nothing that was counted.
async fn counting(server: SocketAddr, keys: Vec<String>) -> Result<Vec<String>, BoxError> {
    let (reader, mut writer) = TcpStream::connect(server).await?.into_split();
    let asked: String = keys.iter().map(|key| format!("mg {key} v\r\n")).collect();
    tokio::spawn(async move { writer.write_all(asked.as_bytes()).await });
    let (mut reader, mut counting) = (BufReader::new(reader), Vec::new());
    for key in keys {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let Some(size) = line.strip_prefix("VA ") else { continue }; // it has expired meanwhile
        let mut value = vec![0; size.trim_end().parse::<usize>()? + 2];
        reader.read_exact(&mut value).await?;
        if !value.starts_with(b"@") {
            counting.push(key);
        }
    }
    Ok(counting)
}

/// A key as the server lists it, percent-encoded, as it is.
fn decoded(listed: &str) -> Result<String, BoxError> {
    let mut parts = listed.split('%');
    let mut key = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).ok_or("not percent-encoded")?;
        key.push(char::from(u8::from_str_radix(code, 16)?));
        key.push_str(rest);
    }
    Ok(key)
}

/// The keys of a server.
async fn keys(server: SocketAddr) -> Result<Vec<String>, BoxError> {
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
            keys.push(decoded(key.ok_or("not a key")?)?);
        }
        // Another case asks at the same time.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
