//! A private Memcached server for a test.
#![allow(dead_code)] // each test file uses its part

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use ratelimit_core::{Clock, Limit, Limits, ManualClock, RateLimiter, SystemClock, Timestamp};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_testbed::{Memcached, Settings, Testbed, Way};

/// A whole hour: where the clocks of the tests stand.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Much longer than a machine that is busy with something else takes for a call.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Limiter = RateLimiter<MemcachedStore, ManualClock>;

pub(crate) struct Server {
    server: ratelimit_testbed::Server,
}

/// These limits, read from text.
pub(crate) fn limits(texts: &[&str]) -> Limits {
    let limits: Vec<Limit> = texts.iter().map(|text| text.parse().unwrap()).collect();
    Limits::new(limits).unwrap()
}

/// A limiter whose clock stands at [`START`].
pub(crate) fn limiter(store: &MemcachedStore, limit: &str) -> Limiter {
    RateLimiter::new(store.clone(), limits(&[limit])).with_clock(ManualClock::at(START))
}

/// What a store needs to reach the server there, with time enough for a busy machine.
pub(crate) fn config(address: &str) -> MemcachedConfig {
    MemcachedConfig { timeout: PATIENCE, ..MemcachedConfig::new(address) }
}

impl Server {
    /// Starts a server on a free port, with these options beside the usual ones: as a process, for whatever else there is
    /// must not be disturbed.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let settings =
            Settings { addresses: Default::default(), only: Some(Way::Process), ..Settings::from_env() };
        let arguments = options.iter().map(|option| (*option).to_owned()).collect();
        let server = Testbed::new(settings).memcached_with(Memcached { arguments }).await;
        Self { server: server.unwrap_or_else(|error| panic!("{error}")) }
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

    /// Kills it if it runs, and starts it empty.
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

    /// Sends text, and gives the lines that come back until one of them begins with `until`.
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

    /// The value of an item as it is stored, `None` if there is none.
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        let mut lines = self.say(&format!("mg {key} v\r\nmn\r\n"), "MN");
        lines[0].starts_with("VA").then(|| lines.swap_remove(1))
    }

    /// The number under this name in the server's statistics.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let lines = self.say("stats\r\n", "END");
        let prefix = format!("STAT {name} ");
        lines.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap().parse().unwrap()
    }

    /// Its keys with the seconds that they still live.
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

/// A key as the server lists it, percent-encoded, as it is.
fn decoded(listed: &str) -> String {
    let mut parts = listed.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut key, part| {
        key.push(char::from(u8::from_str_radix(&part[..2], 16).unwrap()));
        key + &part[2..]
    })
}

/// A port on which nothing listens.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
