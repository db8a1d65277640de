//! How claims share round trips.

use std::time::Duration;

/// How a [`Batched`](super::Batched) store batches.
///
/// ```
/// use ratelimit_core::layers::BatchConfig;
///
/// let config = BatchConfig::default().trips(1).most(500);
/// assert_eq!(config.alone, 16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchConfig {
    /// The maximum number of concurrent round trips, at least one. With more than one, claims of different round trips
    /// may overtake each other, as they may without batching.
    pub trips: usize,
    /// Up to this many concurrent claims are sent individually: with so few, waiting for each other costs more time
    /// than the store saves.
    pub alone: usize,
    /// The maximum number of checks in one round trip, at least one.
    pub most: usize,
    /// The maximum number of checks that wait or are about to be sent, at least one. Further ones immediately fail with
    /// [`ErrorKind::Contended`](crate::ErrorKind::Contended), and are not charged.
    pub waiting: usize,
    /// How long a check that has to wait may take, including its round trip. After that it fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout): it is not charged if it was still waiting, and may be charged
    /// otherwise. The store's own time limit starts with its round trip.
    pub patience: Duration,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { trips: 3, alone: 16, most: 128, waiting: 100_000, patience: Duration::from_secs(1) }
    }
}

impl BatchConfig {
    /// Sets [`trips`](Self#structfield.trips).
    #[must_use]
    pub fn trips(mut self, trips: usize) -> Self {
        self.trips = trips;
        self
    }

    /// Sets [`alone`](Self#structfield.alone).
    #[must_use]
    pub fn alone(mut self, alone: usize) -> Self {
        self.alone = alone;
        self
    }

    /// Sets [`most`](Self#structfield.most).
    #[must_use]
    pub fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Sets [`waiting`](Self#structfield.waiting).
    #[must_use]
    pub fn waiting(mut self, waiting: usize) -> Self {
        self.waiting = waiting;
        self
    }

    /// Sets [`patience`](Self#structfield.patience).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}
