//! The configuration of a store on a pool.

use std::time::Duration;

use crate::config::MemcachedConfig;

/// The configuration of a [`MemcachedStore`](crate::MemcachedStore) on a pool. Servers and connections belong to the pool.
///
/// ```
/// use ratelimit_memcached::PlainConfig;
/// use std::time::Duration;
///
/// let config = PlainConfig::default().timeout(Duration::from_millis(200)).prefix("limits");
/// assert_eq!(config.prefix, "limits");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlainConfig {
    /// The prefix of every key: up to 64 visible ASCII characters without `!` and `#`.
    pub prefix: String,
    /// The maximum duration of a call, including waiting for a connection of the pool, connecting, and the replies.
    pub timeout: Duration,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind. At least
    /// [`CLOCK_SLACK`](ratelimit_core::CLOCK_SLACK).
    pub clock_slack: Duration,
    /// The maximum size in bytes of an item on the servers (their option `-I`). A sliding log whose limit could need more
    /// (eight bytes for each unit, with 512 bytes reserved for the rest of the item) is refused.
    pub max_item_size: usize,
}

impl PlainConfig {
    ratelimit_core::kit::setters! {
        prefix: impl Into<String>,
        timeout: Duration,
        clock_slack: Duration,
        max_item_size: usize,
    }

    /// A configuration with these settings. The others have their defaults, and are not used.
    pub(crate) fn into_memcached(self) -> MemcachedConfig {
        let Self { prefix, timeout, clock_slack, max_item_size } = self;
        MemcachedConfig { prefix, timeout, clock_slack, max_item_size, ..MemcachedConfig::default() }
    }
}

impl Default for PlainConfig {
    /// The values of [`MemcachedConfig::default`]: prefix `rl`, 500 ms, 10 s of slack, items up to 1 MiB.
    fn default() -> Self {
        let MemcachedConfig { prefix, timeout, clock_slack, max_item_size, .. } = MemcachedConfig::default();
        Self { prefix, timeout, clock_slack, max_item_size }
    }
}
