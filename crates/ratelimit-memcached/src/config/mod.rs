//! The configuration of a store.

pub(crate) mod address;
pub(crate) mod check;
pub(crate) mod distribution;
pub(crate) mod options;

use std::fmt;
use std::time::Duration;

use ratelimit_store_kit::{Certificates, Lifetime};

use crate::config::address::without_log_in;
use crate::config::distribution::Distribution;

/// The configuration of a [`MemcachedStore`](crate::MemcachedStore).
///
/// [`from_url`](Self::from_url) takes the address. A store on a pool of yours does not use the servers, their distribution, the
/// number of [`connections`](Self::connections), and what belongs to TLS and the log-in: these are the pool's. Each field has a
/// setter of the same name:
///
/// ```
/// use ratelimit_memcached::MemcachedConfig;
/// use std::time::Duration;
///
/// let config = MemcachedConfig::from_url("memcached://me:secret@cache-1.internal,cache-2.internal:11212")?
///     .timeout(Duration::from_millis(100));
/// assert_eq!(config.servers, ["cache-1.internal", "cache-2.internal:11212"]);
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct MemcachedConfig {
    /// The addresses of the servers: `host`, `host:port` or `[v6]:port`, with 11211 as the default port, or
    /// `/path/to/socket` for a Unix socket.
    ///
    /// The names decide which server stores a key, so every process must use the same ones: a host and its IP address are
    /// two different servers. Their order does not matter. Adding or removing a server moves only its own share of the
    /// keys, which then count from zero.
    pub servers: Vec<String>,
    /// How keys are distributed over several servers. Must be the same in every process.
    pub distribution: Distribution,
    /// Whether connections are encrypted (feature `tls`); set by `memcacheds://` in [`from_url`](Self::from_url).
    pub tls: bool,
    /// Certificates (PEM) of the authorities to trust for TLS, instead of the machine's. It is an error to set this, or a
    /// client certificate, without [`tls`](Self::tls).
    pub authorities: Option<Vec<u8>>,
    /// The certificate (PEM) for servers that ask clients for one, followed by any intermediate certificates. Requires
    /// [`client_key`](Self::client_key).
    pub client_certificate: Option<Vec<u8>>,
    /// The private key (PEM) of [`client_certificate`](Self::client_certificate).
    pub client_key: Option<Vec<u8>>,
    /// The user to log in with, the same on all servers; see the servers' option `-Y`. Without one there is no log-in.
    pub user: Option<String>,
    /// The password of [`user`](Self::user).
    pub password: Option<String>,
    /// The prefix of every key: up to 64 visible ASCII characters without `!` and `#`.
    pub prefix: String,
    /// The maximum duration of a call, including connecting, logging in, waiting for other calls or for your pool, and
    /// the replies.
    pub timeout: Duration,
    /// The number of connections to each server, used in turn. Calls on one connection do not wait for each other.
    pub connections: usize,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind. At least
    /// [`CLOCK_SLACK`](ratelimit_core::store::CLOCK_SLACK).
    pub clock_slack: Duration,
    /// The maximum size in bytes of an item on the servers (their option `-I`). A sliding log whose limit could need more
    /// (eight bytes for each unit, with 512 bytes reserved for the rest of the item) is refused, and so is a server whose
    /// items are smaller. On a pool of yours the servers' size is not checked.
    pub max_item_size: usize,
}

impl MemcachedConfig {
    /// Sets [`servers`](Self::servers).
    #[must_use]
    pub fn servers(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.servers = servers.into_iter().map(Into::into).collect();
        self
    }

    ratelimit_core::kit::setters! {
        distribution: Distribution,
        tls: bool,
        authorities: impl Into<Option<Vec<u8>>>,
        client_certificate: impl Into<Option<Vec<u8>>>,
        client_key: impl Into<Option<Vec<u8>>>,
        user: impl Into<Option<String>>,
        password: impl Into<Option<String>>,
        prefix: impl Into<String>,
        timeout: Duration,
        connections: usize,
        clock_slack: Duration,
        max_item_size: usize,
    }

    /// The largest value that certainly fits: an item also holds its key and up to 64 bytes of overhead.
    pub(crate) fn max_value(&self) -> usize {
        self.max_item_size.saturating_sub(512)
    }

    pub(crate) fn certificates(&self) -> Certificates<'_> {
        Certificates {
            authorities: self.authorities.as_deref(),
            client_certificate: self.client_certificate.as_deref(),
            client_key: self.client_key.as_deref(),
        }
    }
}

impl Default for MemcachedConfig {
    /// The server at `127.0.0.1:11211`, without TLS or a log-in, prefix `rl`, 500 ms, two connections, 10 s of slack, items
    /// up to 1 MiB.
    fn default() -> Self {
        Self {
            servers: vec!["127.0.0.1:11211".to_owned()],
            distribution: Distribution::default(),
            tls: false,
            authorities: None,
            client_certificate: None,
            client_key: None,
            user: None,
            password: None,
            prefix: "rl".to_owned(),
            timeout: Duration::from_millis(500),
            connections: 2,
            clock_slack: Lifetime::SLACK,
            max_item_size: 1024 * 1024,
        }
    }
}

impl fmt::Debug for MemcachedConfig {
    /// Does not show secrets, only whether they are set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |is_set: bool| if is_set { "hidden" } else { "none" };
        let servers: Vec<&str> = self.servers.iter().map(|server| without_log_in(server)).collect();
        f.debug_struct("MemcachedConfig")
            .field("servers", &servers)
            .field("distribution", &self.distribution)
            .field("tls", &self.tls)
            .field("authorities", &self.authorities.as_ref().map(Vec::len))
            .field("client_certificate", &self.client_certificate.as_ref().map(Vec::len))
            .field("client_key", &hidden(self.client_key.is_some()))
            .field("user", &hidden(self.user.is_some()))
            .field("password", &hidden(self.password.is_some()))
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("clock_slack", &self.clock_slack)
            .field("max_item_size", &self.max_item_size)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let config = MemcachedConfig::of("memcached://me:secret@a:1,you:secret@b:1")
            .client_key(Some(b"secret".to_vec()))
            .authorities(Some(b"secret".to_vec()));
        let shown = format!("{config:?}");
        assert!(!shown.contains("secret") && !shown.contains("115") && shown.contains("a:1"), "{shown}");
        let shown = format!("{:?}", MemcachedConfig::default().servers(["memcached://me:se@cret@a:1"]));
        assert!(!shown.contains("cret") && shown.contains("a:1"), "{shown}");
    }
}
