//! When a breaker opens, and for how long.

use std::time::Duration;

/// When a [`Breaker`](super::Breaker) opens, and how long it pauses.
///
/// ```
/// use ratelimit_core::layers::BreakerConfig;
/// use std::time::Duration;
///
/// let config = BreakerConfig::default().failures(3).longest_pause(Duration::from_secs(1));
/// assert_eq!(config.first_pause, Duration::from_millis(250));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// The breaker opens after this many consecutive calls have failed; at least one. 5 by default.
    pub failures: u32,
    /// The length of the pause after the breaker has opened; at least 1 ms. Each probe that fails doubles it. Real pauses
    /// are random, between half of this and all of it, so that many instances do not probe at the same instant. 250 ms by
    /// default.
    pub first_pause: Duration,
    /// The longest pause. A store that answers again is unused for at most this time, until the next call after it. 5 s by
    /// default.
    pub longest_pause: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failures: 5, first_pause: Duration::from_millis(250), longest_pause: Duration::from_secs(5) }
    }
}

impl BreakerConfig {
    crate::kit::setters! {
        failures: u32,
        first_pause: Duration,
        longest_pause: Duration,
    }
}
