//! A private Memcached server for a test.
#![allow(dead_code)] // each test file uses a part of it

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use ratelimit_core::{Clock, Limit, Limits, ManualClock, RateLimiter, SystemClock, Timestamp};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_testbed::{Memcached, Settings, Testbed, Way};

/// A full hour, at which the tests' clocks start.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Much longer than any call takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Limiter = RateLimiter<MemcachedStore, ManualClock>;

pub(crate) struct Server {
    server: ratelimit_testbed::Server,
}

/// Parses limits.
pub(crate) fn limits(texts: &[&str]) -> Limits {
    let limits: Vec<Limit> = texts.iter().map(|text| text.parse().unwrap()).collect();
    Limits::new(limits).unwrap()
}

/// A limiter whose clock is at [`START`].
pub(crate) fn limiter(store: &MemcachedStore, limit: &str) -> Limiter {
    RateLimiter::new(store.clone(), limits(&[limit])).with_clock(ManualClock::at(START))
}

/// A configuration for the server at this address, with a timeout for a busy machine.
pub(crate) fn config(address: &str) -> MemcachedConfig {
    MemcachedConfig::from_url(address).unwrap().timeout(PATIENCE)
}

impl Server {
    /// Starts a server on a free port, with these options added to the usual ones: as a process, so that no other server is
    /// disturbed.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let arguments = options.iter().map(|option| (*option).to_owned()).collect();
        Self::start_as(Memcached { arguments, ..Memcached::default() }).await
    }

    /// The same with further settings.
    pub(crate) async fn start_as(way: Memcached) -> Self {
        let settings =
            Settings { addresses: Default::default(), only: Some(Way::Process), ..Settings::from_env() };
        let server = Testbed::new(settings).memcached_with(way).await;
        Self { server: server.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Contains everything that clients need, except certificates.
    pub(crate) fn url(&self) -> &str {
        self.server.url()
    }

    pub(crate) fn address(&self) -> String {
        self.server.address().to_string()
    }

    /// See [`config`].
    pub(crate) fn config(&self) -> MemcachedConfig {
        config(&self.address())
    }

    pub(crate) async fn store(&self) -> MemcachedStore {
        MemcachedStore::connect_with(self.config()).await.unwrap()
    }

    /// Kills it if it is running, and starts it empty.
    pub(crate) async fn restart(&self) {
        self.kill().await;
        self.server.start().await.unwrap();
    }

    pub(crate) async fn kill(&self) {
        self.server.kill().await.unwrap();
    }

    pub(crate) async fn freeze(&self) {
        self.server.freeze().await.unwrap();
    }

    pub(crate) async fn thaw(&self) {
        self.server.thaw().await.unwrap();
    }

    /// Sends text and returns the reply's lines up to the first that begins with `until`.
    pub(crate) fn say(&self, text: &str, until: &str) -> Vec<String> {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(stream).lines() {
            lines.push(line.unwrap());
            if lines.last().unwrap().starts_with(until) {
                break;
            }
        }
        lines
    }

    /// The value of an item as stored, `None` if it does not exist.
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        let mut lines = self.say(&format!("mg {key} v\r\nmn\r\n"), "MN");
        lines[0].starts_with("VA").then(|| lines.swap_remove(1))
    }

    /// The number with this name in the server's statistics.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let lines = self.say("stats\r\n", "END");
        let prefix = format!("STAT {name} ");
        lines.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap().parse().unwrap()
    }

    /// Its keys with their remaining lifetimes in seconds.
    pub(crate) fn keys(&self) -> Vec<(String, u64)> {
        let lines = self.say("lru_crawler metadump all\r\n", "END");
        let rows = lines.iter().filter_map(|line| line.strip_prefix("key="));
        let now = SystemClock::new().now().since(Timestamp::EPOCH).as_secs();
        rows.map(|row| {
            let (key, rest) = row.split_once(" exp=").unwrap();
            let end: u64 = rest.split(' ').next().unwrap().parse().unwrap_or(u64::MAX);
            (decoded(key), end.saturating_sub(now))
        })
        .collect()
    }
}

/// Decodes a key that the server lists percent-encoded.
fn decoded(listed: &str) -> String {
    let mut parts = listed.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut key, part| {
        key.push(char::from(u8::from_str_radix(&part[..2], 16).unwrap()));
        key + &part[2..]
    })
}

/// A pool of `size` connections to the server or proxy at this address.
#[cfg(feature = "memcache")]
pub(crate) fn pool(address: &str, size: usize) -> ratelimit_memcached::MemcachePool {
    let manager = ratelimit_memcached::MemcacheManager::new(address).unwrap();
    ratelimit_memcached::MemcachePool::builder(manager).max_size(size).build().unwrap()
}

/// A store with the plain protocol, with a timeout for a busy machine.
#[cfg(feature = "memcache")]
pub(crate) fn plain(address: &str) -> MemcachedStore {
    let config = MemcachedConfig::default().timeout(PATIENCE);
    MemcachedStore::with_pool(pool(address, 4), config).unwrap()
}

/// Forwards to a server. Passes each request to `seen` once the server has answered it, before the client gets the reply;
/// if `seen` returns true, closes the connection instead.
pub(crate) async fn between(
    server: String,
    seen: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), std::sync::Arc::new(seen));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = tokio::net::TcpStream::connect(&server).await.unwrap();
            let seen = seen.clone();
            tokio::spawn(async move {
                // One request at a time and small replies, so that each arrives as a whole.
                let (mut request, mut answer) = (Vec::with_capacity(4_096), Vec::with_capacity(4_096));
                loop {
                    let sent = request.len();
                    tokio::select! {
                        Ok(1..) = client.read_buf(&mut request) => server.write_all(&request[sent..]).await.unwrap(),
                        Ok(1..) = server.read_buf(&mut answer) => {
                            if seen(&String::from_utf8_lossy(&request)) {
                                return;
                            }
                            request.clear();
                            client.write_all(&answer).await.unwrap();
                            answer.clear();
                        }
                        else => return,
                    }
                }
            });
        }
    });
    address
}

/// A port on which nothing listens.
pub(crate) fn free_port() -> u16 {
    let port = ratelimit_testbed::Port::reserve().unwrap();
    let number = port.number();
    std::mem::forget(port); // reserved until the tests end
    number
}
