//! How a store reaches its server and writes there.

use std::fmt;
use std::time::Duration;

use ratelimit_core::{BatchConfig, CLOCK_SLACK};

/// How a [`RedisStore`](crate::RedisStore) reaches its server and writes there.
///
/// ```
/// use ratelimit_redis::{RedisConfig, TimeSource};
/// use std::time::Duration;
///
/// let config = RedisConfig {
///     timeout: Duration::from_millis(100),
///     time: TimeSource::Server,
///     ..RedisConfig::new("redis://:secret@limits.internal:6379/0")
/// };
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    /// Where the server is: `redis://[user][:password@]host[:port][/database]`, `rediss://…` for TLS (feature `tls`),
    /// or `redis+unix:///path/to/socket`. For a cluster one or more of its nodes, for one server exactly one.
    pub urls: Vec<String>,
    /// What every key begins with.
    pub prefix: String,
    /// How long a call may take, with everything that belongs to it: connecting, waiting for others, the answer.
    pub timeout: Duration,
    /// How many connections share the work, in turn. One is enough for most: calls do not wait for each other on it. Of a
    /// cluster, to each node.
    pub connections: usize,
    /// Whose time decides.
    pub time: TimeSource,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind; at least
    /// [`CLOCK_SLACK`].
    pub clock_slack: Duration,
    /// How checks that come while others are under way share calls to one server, exact and in their order; see
    /// [`Batched`](ratelimit_core::Batched). `None` gives each a call of its own. Its `patience` is always
    /// [`timeout`](Self::timeout). On a cluster calls are not shared.
    pub batch: Option<BatchConfig>,
    /// Certificates (PEM) of the authorities to trust for `rediss://`, instead of those of the machine.
    pub authorities: Option<Vec<u8>>,
}

/// Whose time decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeSource {
    /// The caller's: the limiter's clock. Processes that share the server should have their clocks synchronised.
    #[default]
    Caller,
    /// The server's, to the microsecond; the limiter's clock then plays no part.
    Server,
}

impl RedisConfig {
    /// The defaults, for the server at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { urls: vec![url.into()], ..Self::default() }
    }

    /// The slack in milliseconds, never below what a store owes.
    pub(crate) fn slack_millis(&self) -> u64 {
        // Longer than a century is as good as a century.
        let millis = self.clock_slack.max(CLOCK_SLACK).as_millis().min(3_155_760_000_000);
        u64::try_from(millis).unwrap_or(u64::MAX)
    }
}

impl Default for RedisConfig {
    /// The server at `127.0.0.1:6379`, prefix `rl:`, 500 ms, one connection, the caller's time, 10 s of slack,
    /// shared calls.
    fn default() -> Self {
        Self {
            urls: vec!["redis://127.0.0.1:6379/".to_owned()],
            prefix: "rl:".to_owned(),
            timeout: Duration::from_millis(500),
            connections: 1,
            time: TimeSource::Caller,
            clock_slack: Duration::from_secs(10),
            batch: Some(BatchConfig::default()),
            authorities: None,
        }
    }
}

impl fmt::Debug for RedisConfig {
    /// Addresses may hold passwords: only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("urls", &format_args!("{} hidden", self.urls.len()))
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("time", &self.time)
            .field("clock_slack", &self.clock_slack)
            .field("batch", &self.batch)
            .field("authorities", &self.authorities.as_ref().map(Vec::len))
            .finish()
    }
}
