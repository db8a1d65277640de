//! How claims share round trips.

use std::time::Duration;

/// How a [`Batched`](super::Batched) store batches.
///
/// ```
/// use ratelimit_core::layers::BatchConfig;
///
/// let config = BatchConfig::default().concurrent_batches(1).batch_size(500);
/// assert_eq!(config.unbatched, 16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchConfig {
    /// The maximum number of concurrent round trips, at least one; 3 by default. With more than one, claims of different
    /// round trips may overtake each other, as they may without batching.
    pub concurrent_batches: usize,
    /// Up to this many concurrent claims are sent individually; 16 by default. With so few, waiting for each other would
    /// cost more time than the store would save.
    pub unbatched: usize,
    /// The maximum number of checks in one round trip, at least one; 128 by default.
    pub batch_size: usize,
    /// The maximum number of checks that wait or are about to be sent, at least one; 100,000 by default. Further checks
    /// fail immediately with [`ErrorKind::Contended`](crate::ErrorKind::Contended), and are not charged.
    pub max_waiting: usize,
    /// How long a check that has to wait may take, including its round trip; 1 s by default. After half of it, a check that
    /// still waits fails with [`ErrorKind::Timeout`](crate::ErrorKind::Timeout), and was not charged; a check that was sent
    /// fails after the whole, and may have been charged. The store's own time limit starts with the round trip.
    pub timeout: Duration,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            concurrent_batches: 3,
            unbatched: 16,
            batch_size: 128,
            max_waiting: 100_000,
            timeout: Duration::from_secs(1),
        }
    }
}

impl BatchConfig {
    crate::kit::setters! {
        concurrent_batches: usize,
        unbatched: usize,
        batch_size: usize,
        max_waiting: usize,
        timeout: Duration,
    }
}
