//! How a store reaches its servers and writes there.

use std::time::Duration;

use ratelimit_core::{CLOCK_SLACK, ErrorKind};

use crate::error::Failure;

/// The port that a server listens on unless its address names another.
const PORT: u16 = 11_211;

/// The longest prefix: keys have 250 bytes.
const LONGEST_PREFIX: usize = 64;

/// How a [`MemcachedStore`](crate::MemcachedStore) reaches its servers and writes there.
///
/// ```
/// use ratelimit_memcached::MemcachedConfig;
/// use std::time::Duration;
///
/// let config = MemcachedConfig {
///     timeout: Duration::from_millis(100),
///     ..MemcachedConfig::new("memcached://cache-1.internal:11211,cache-2.internal:11211")
/// };
/// assert_eq!(config.servers, ["cache-1.internal:11211", "cache-2.internal:11211"]);
/// ```
#[derive(Clone, Debug)]
pub struct MemcachedConfig {
    /// Where the servers are: `host`, `host:port` or `[v6]:port`; port 11211 unless it is given.
    ///
    /// Keys are spread over them by these texts: every process must write them alike. Their order plays no part. A
    /// server that is added or taken away moves only its own share of the keys, which count from zero then.
    pub servers: Vec<String>,
    /// What every key begins with: up to 64 visible ASCII characters without `!` and `#`.
    pub prefix: String,
    /// How long a call may take, with everything that belongs to it: connecting, waiting for others, the answers.
    pub timeout: Duration,
    /// How many connections to each server share the work, in turn. Calls do not wait for each other on them.
    pub connections: usize,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind; at least
    /// [`CLOCK_SLACK`].
    pub clock_slack: Duration,
    /// The size in bytes of the largest item that the servers take (their option `-I`). A sliding log whose limit would
    /// need more (eight bytes a unit) is refused.
    pub max_item_size: usize,
}

impl MemcachedConfig {
    /// The defaults, for the servers in `url`: `memcached://host:port[,host:port…]`, the scheme being optional.
    pub fn new(url: &str) -> Self {
        let list = url.strip_prefix("memcached://").unwrap_or(url).trim_end_matches('/');
        Self { servers: list.split(',').map(|server| server.trim().to_owned()).collect(), ..Self::default() }
    }

    /// The largest value that surely fits: an item also holds its key and up to 64 bytes of the server's own.
    pub(crate) fn max_value(&self) -> usize {
        self.max_item_size.saturating_sub(512)
    }

    /// The slack, never below what a store owes.
    pub(crate) fn slack(&self) -> Duration {
        self.clock_slack.max(CLOCK_SLACK)
    }

    /// The servers' addresses with their ports.
    pub(crate) fn addresses(&self) -> Result<Vec<String>, Failure> {
        let invalid = |message: &'static str| Err(Failure::new(ErrorKind::Unsupported, message));
        if self.prefix.len() > LONGEST_PREFIX || !self.prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return invalid("the prefix is not valid: up to 64 visible ASCII characters");
        }
        if self.prefix.contains(['!', '#']) {
            return invalid("the prefix must not contain `!` or `#`");
        }
        let mut addresses = Vec::with_capacity(self.servers.len());
        for server in &self.servers {
            match address(server) {
                Some(address) if !addresses.contains(&address) => addresses.push(address),
                Some(_) => return invalid("a server is named twice"),
                None => {
                    return invalid(
                        "an address is not valid; it looks like memcached://host:11211,host:11211",
                    );
                }
            }
        }
        if addresses.is_empty() { invalid("no server is given") } else { Ok(addresses) }
    }
}

impl Default for MemcachedConfig {
    /// The server at `127.0.0.1:11211`, prefix `rl`, 500 ms, two connections, 10 s of slack, items up to 1 MiB.
    fn default() -> Self {
        Self {
            servers: vec!["127.0.0.1:11211".to_owned()],
            prefix: "rl".to_owned(),
            timeout: Duration::from_millis(500),
            connections: 2,
            clock_slack: Duration::from_secs(10),
            max_item_size: 1024 * 1024,
        }
    }
}

/// `server` with its port; `None` if it cannot be an address.
fn address(server: &str) -> Option<String> {
    let host = |text: &str| {
        let clean = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte));
        !text.is_empty() && clean
    };
    if let Some(rest) = server.strip_prefix('[') {
        let (v6, port) = rest.split_once(']')?;
        let port = if port.is_empty() { PORT } else { port.strip_prefix(':')?.parse().ok()? };
        return host(v6).then(|| format!("[{v6}]:{port}"));
    }
    let (name, port) = match server.split_once(':') {
        Some((name, port)) => (name, port.parse().ok()?),
        None => (server, PORT),
    };
    host(name).then(|| format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Option<Vec<String>> {
        MemcachedConfig::new(url).addresses().ok()
    }

    #[test]
    fn addresses_are_read() {
        let some = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(addresses("memcached://a:1,b:2/"), some(&["a:1", "b:2"]));
        assert_eq!(addresses("a, b"), some(&["a:11211", "b:11211"]));
        assert_eq!(addresses("[::1]:5,[::2]"), some(&["[::1]:5", "[::2]:11211"]));
        for wrong in
            ["", "memcached://", "a,,b", "a:x", "a:99999", "a b:1", "user:secret@a:1", "a,a:11211", "::1"]
        {
            assert_eq!(addresses(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn prefixes_are_checked() {
        for (prefix, valid) in
            [("", true), ("rl:", true), ("a b", false), ("a!", false), ("#", false), ("ä", false)]
        {
            let config = MemcachedConfig { prefix: prefix.to_owned(), ..MemcachedConfig::default() };
            assert_eq!(config.addresses().is_ok(), valid, "{prefix}");
        }
    }
}
