//! The configuration of a store on a connection or a pool that the program already has.

use std::time::Duration;

use ratelimit_core::CLOCK_SLACK;
use ratelimit_core::kit::TimeSource;
use ratelimit_core::layers::BatchConfig;

/// The configuration of a [`RedisStore`](crate::RedisStore) on your own connection or pool.
///
/// It has no address, no TLS and no number of connections: these belong to the connection or the pool.
///
/// ```
/// use ratelimit_redis::StoreConfig;
/// use std::time::Duration;
///
/// let config = StoreConfig::default().prefix("limits:").timeout(Duration::from_millis(100));
/// assert_eq!(config.prefix, "limits:");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreConfig {
    /// The prefix of every key. On a cluster it must not contain `{}`, or the limits of one key are in several slots.
    pub prefix: String,
    /// The maximum duration of a call, including waiting for the pool, connecting, and the reply.
    pub timeout: Duration,
    /// Whose clock decides: the caller's or the server's.
    pub time: TimeSource,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind. At least
    /// [`CLOCK_SLACK`].
    pub clock_slack: Duration,
    /// How checks that arrive while others are under way share calls, as in
    /// [`RedisConfig::batch`](crate::RedisConfig::batch). On a cluster each check is a call of its own.
    pub batch: Option<BatchConfig>,
}

impl StoreConfig {
    ratelimit_core::kit::setters! {
        prefix: impl Into<String>,
        timeout: Duration,
        time: TimeSource,
        clock_slack: Duration,
        batch: impl Into<Option<BatchConfig>>,
    }

    /// The slack in milliseconds, at least [`CLOCK_SLACK`].
    pub(crate) fn slack_millis(&self) -> u64 {
        // At most a century, which is as good as any longer time.
        let millis = self.clock_slack.max(CLOCK_SLACK).as_millis().min(3_155_760_000_000);
        u64::try_from(millis).unwrap_or(u64::MAX)
    }
}

impl Default for StoreConfig {
    /// Prefix `rl:`, 500 ms, the caller's clock, 10 s of slack, shared calls.
    fn default() -> Self {
        Self {
            prefix: "rl:".to_owned(),
            timeout: Duration::from_millis(500),
            time: TimeSource::Caller,
            clock_slack: Duration::from_secs(10),
            batch: Some(BatchConfig::default()),
        }
    }
}
