//! The conformance suite on this store: one server, several servers, each kind of connection, the plain protocol.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Server, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_memcached::{Distribution, MemcachedConfig, MemcachedStore};
#[cfg(feature = "memcache")]
use ratelimit_memcached::{MemcacheManager, MemcachePool};
use ratelimit_testbed::{Asked, Group, Testbed, Unavailable};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::Instant;

use admin::Admin;

#[path = "common/admin.rs"]
mod admin;
#[path = "common/ways.rs"]
mod ways;

/// Longer than any call takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The same if hundreds of calls wait for a few connections.
#[cfg(feature = "memcache")]
const PLAIN_TIMEOUT: Duration = Duration::from_secs(7);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    ratelimit_conformance::main(runtime.block_on(subjects(&Testbed::from_env())))
}

const NAMES: [&str; 8] = [
    "memcached",
    "memcached-pair",
    "memcached-ketama",
    "memcached-auth",
    "memcached-unix",
    "memcached-tls",
    "memcached-plain",
    "memcached-proxy",
];

/// The requested targets. A server that none of them needs is not started.
async fn subjects(testbed: &Testbed) -> Vec<Box<dyn Subject>> {
    let several = |group: Group, distribution| Target {
        config: config(&group.urls().join(",").replace(",memcached://", ",")).distribution(distribution),
        admins: group.servers().iter().map(|server| Admin::of(server, None)).collect(),
        servers: Servers::Group(group),
    };
    let asked = Asked::from_args(&NAMES);
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    if asked.has("memcached") {
        subjects.push(subject("memcached", testbed.memcached().await.map(|server| single(server, None))));
    }
    if asked.has("memcached-pair") {
        let pair = testbed.memcached_pair().await;
        subjects.push(subject("memcached-pair", pair.map(|group| several(group, Distribution::Rendezvous))));
    }
    if asked.has("memcached-ketama") {
        let three = testbed.memcached_three().await;
        subjects.push(subject("memcached-ketama", three.map(|group| several(group, Distribution::Ketama))));
    }
    if asked.has("memcached-auth") {
        let way = ways::log_in();
        let server = testbed.memcached_with(way.clone()).await;
        subjects.push(subject("memcached-auth", server.map(|server| single(server, Some(&way)))));
    }
    if asked.has("memcached-unix") {
        let (way, folder) = ways::socket();
        let server = testbed.memcached_with(way.clone()).await;
        let target = Arc::new(server.map(|server| single(server, Some(&way))));
        subjects.push(Box::new(Memcached { name: "memcached-unix", target, _folder: Some(folder) }));
    }
    #[cfg(feature = "tls")]
    if asked.has("memcached-tls") {
        let way = ways::tls();
        let server = testbed.memcached_with(way.clone()).await;
        let target = server.map(|server| {
            let mut target = single(server, Some(&way));
            target.config = ways::with_certificates(target.config, &way);
            target
        });
        subjects.push(subject("memcached-tls", target));
    }
    #[cfg(feature = "memcache")]
    if asked.has("memcached-plain") {
        let front = testbed.memcached().await.map(Arc::new).map(|server| Front {
            admins: vec![Admin::of(&server, None)],
            address: server.address(),
            control: server.is_controlled().then_some(server as Arc<dyn Server>),
        });
        subjects.push(Box::new(Plain { name: "memcached-plain", front }));
    }
    #[cfg(feature = "memcache")]
    if asked.has("memcached-proxy") {
        let front = testbed.twemproxy().await.map(Arc::new).map(|group| {
            let (proxy, servers) = group.servers().split_last().expect("a proxy");
            Front {
                admins: servers.iter().map(|server| Admin::of(server, None)).collect(),
                address: proxy.address(),
                control: group.is_controlled().then_some(group.clone() as Arc<dyn Server>),
            }
        });
        subjects.push(Box::new(Plain { name: "memcached-proxy", front }));
    }
    subjects
}

fn subject(name: &'static str, target: Result<Target, Unavailable>) -> Box<dyn Subject> {
    Box::new(Memcached { name, target: Arc::new(target), _folder: None })
}

fn single(server: ratelimit_testbed::Server, way: Option<&ratelimit_testbed::Memcached>) -> Target {
    Target {
        config: config(server.url()),
        admins: vec![Admin::of(&server, way)],
        servers: Servers::Single(server),
    }
}

fn config(url: &str) -> MemcachedConfig {
    MemcachedConfig::from_url(url).unwrap().timeout(TIMEOUT)
}

struct Target {
    servers: Servers,
    admins: Vec<Admin>,
    config: MemcachedConfig,
}

enum Servers {
    Single(ratelimit_testbed::Server),
    Group(Group),
}

struct Memcached {
    name: &'static str,
    target: Arc<Result<Target, Unavailable>>,
    /// The directory of its socket.
    _folder: Option<tempfile::TempDir>,
}

/// A prefix that nothing else uses.
struct Prefix {
    config: MemcachedConfig,
    admins: Vec<Admin>,
    address: Option<SocketAddr>,
}

#[async_trait]
impl Subject for Memcached {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Target { servers, admins, config } =
            self.target.as_ref().as_ref().map_err(ToString::to_string)?;
        let prefix = format!("conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        // A proxy cannot forward to two servers, nor to a Unix socket.
        let address = match servers {
            Servers::Single(server) if !config.servers[0].starts_with('/') => Some(server.address()),
            _ => None,
        };
        Ok(Arc::new(Prefix { config: config.clone().prefix(prefix), admins: admins.clone(), address }))
    }

    fn unavailable(&self) -> Option<String> {
        Some(self.target.as_ref().as_ref().err()?.to_string())
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        match &self.target.as_ref().as_ref().ok()?.servers {
            Servers::Single(server) if server.is_controlled() => Some(Arc::new(server.clone())),
            Servers::Group(group) if group.is_controlled() => Some(Arc::new(group.clone())),
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
        self.address
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let config = self.config.clone().servers([address.to_string()]);
        Ok(Arc::new(MemcachedStore::connect_with(config).await?))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        meters(&self.admins, &self.config.prefix).await.map(Some)
    }
}

/// With the plain protocol.
#[cfg(feature = "memcache")]
struct Plain {
    name: &'static str,
    front: Result<Front, Unavailable>,
}

/// A server, or a proxy in front of servers.
#[cfg(feature = "memcache")]
#[derive(Clone)]
struct Front {
    address: SocketAddr,
    /// The servers that store the items; none if they are behind a given proxy.
    admins: Vec<Admin>,
    control: Option<Arc<dyn Server>>,
}

/// A prefix that nothing else uses, with the plain protocol.
#[cfg(feature = "memcache")]
struct PlainPrefix {
    prefix: String,
    front: Front,
}

#[cfg(feature = "memcache")]
#[async_trait]
impl Subject for Plain {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let front = self.front.as_ref().map_err(ToString::to_string)?.clone();
        let prefix = format!("plain-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        Ok(Arc::new(PlainPrefix { prefix, front }))
    }

    fn unavailable(&self) -> Option<String> {
        Some(self.front.as_ref().err()?.to_string())
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        self.front.as_ref().ok()?.control.clone()
    }
}

#[cfg(feature = "memcache")]
#[async_trait]
impl Space for PlainPrefix {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open_at(self.front.address).await
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.front.address)
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let pool = MemcachePool::builder(MemcacheManager::new(&address.to_string())?).max_size(8).build()?;
        let config = MemcachedConfig::default().prefix(&self.prefix).timeout(PLAIN_TIMEOUT);
        Ok(Arc::new(MemcachedStore::with_pool(pool, config)?))
    }

    fn sends_together(&self) -> bool {
        false
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        if self.front.admins.is_empty() {
            return Ok(None);
        }
        meters(&self.front.admins, &self.prefix).await.map(Some)
    }
}

/// How many meters these servers store under a prefix.
async fn meters(admins: &[Admin], prefix: &str) -> Result<u64, BoxError> {
    let mut names = HashSet::new();
    for admin in admins {
        let keys = keys(admin, prefix).await?;
        let counting = counting(admin, keys).await?;
        names.extend(counting.iter().filter_map(|key| meter(key, prefix)));
    }
    Ok(names.len() as u64)
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

/// The keys whose value is not just a reset's mark, which counts nothing.
async fn counting(admin: &Admin, keys: Vec<String>) -> Result<Vec<String>, BoxError> {
    let (reader, mut writer) = tokio::io::split(admin.connect().await?);
    let asked: String = keys.iter().map(|key| format!("mg {key} v\r\n")).collect();
    tokio::spawn(async move { writer.write_all(asked.as_bytes()).await });
    let (mut reader, mut counting) = (BufReader::new(reader), Vec::new());
    for key in keys {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let Some(size) = line.strip_prefix("VA ") else { continue }; // it has expired since
        let mut value = vec![0; size.trim_end().parse::<usize>()? + 2];
        reader.read_exact(&mut value).await?;
        if !value.starts_with(b"@") {
            counting.push(key);
        }
    }
    Ok(counting)
}

/// Decodes a key that the server lists percent-encoded.
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

/// The keys of a server under a prefix. Whoever waits while the server lists its keys shares the next list: the server lists
/// them for one at a time, and has the keys of all cases.
async fn keys(admin: &Admin, prefix: &str) -> Result<Vec<String>, BoxError> {
    type Lists = HashMap<SocketAddr, (Instant, Vec<String>)>;
    static LISTS: tokio::sync::Mutex<Option<Lists>> = tokio::sync::Mutex::const_new(None);
    let asked = Instant::now();
    let mut lists = LISTS.lock().await;
    let list = lists.get_or_insert_default().entry(admin.address).or_insert_with(|| (asked, Vec::new()));
    if list.0 <= asked {
        *list = (Instant::now(), list_keys(admin).await?);
    }
    Ok(list.1.iter().filter(|key| key.starts_with(prefix)).cloned().collect())
}

/// All keys of a server.
async fn list_keys(admin: &Admin) -> Result<Vec<String>, BoxError> {
    loop {
        let mut stream = BufReader::new(admin.connect().await?);
        // `all` walks the queues of recently used items, and misses those that move or are locked meanwhile.
        stream.write_all(b"lru_crawler metadump hash\r\n").await?;
        let (mut keys, mut line) = (Vec::new(), String::new());
        while stream.read_line(&mut line).await? > 0 {
            if line.starts_with("END") {
                return Ok(keys);
            }
            if line.starts_with("BUSY") || line.contains("locked") {
                break;
            }
            let key = line.strip_prefix("key=").and_then(|rest| rest.split(' ').next());
            keys.push(decoded(key.ok_or("not a key")?)?);
            line.clear();
        }
        // The server itself looks for items that have expired.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
