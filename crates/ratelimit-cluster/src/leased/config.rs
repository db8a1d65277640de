//! The configuration of `Leased`.

use std::time::Duration;

/// How much a node leases, and for how long it holds units that it does not spend.
///
/// ```
/// use ratelimit_cluster::LeaseConfig;
///
/// let config = LeaseConfig::default().largest(500);
/// assert_eq!(config.smallest_limit, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// Claims on limits of fewer units go directly to the store. 100 by default.
    pub smallest_limit: u64,
    /// The most units in one lease, and so the most units of a meter that a crash loses until its window ends. 10,000 by
    /// default.
    pub largest: u64,
    /// A lease is at most the `share`-th part of what remains. 8 by default; more nodes need a larger number.
    pub share: u64,
    /// A lease that is spent within this time is followed by one of twice the size, otherwise by one of half the size.
    /// One second by default.
    pub hold: Duration,
    /// The most meters with a lease; claims on others go directly to the store. 1,000,000 by default.
    pub max_keys: usize,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            smallest_limit: 100,
            largest: 10_000,
            share: 8,
            hold: Duration::from_secs(1),
            max_keys: 1_000_000,
        }
    }
}

impl LeaseConfig {
    /// Sets [`smallest_limit`](Self#structfield.smallest_limit).
    #[must_use]
    pub fn smallest_limit(mut self, smallest_limit: u64) -> Self {
        self.smallest_limit = smallest_limit;
        self
    }

    /// Sets [`largest`](Self#structfield.largest).
    #[must_use]
    pub fn largest(mut self, largest: u64) -> Self {
        self.largest = largest;
        self
    }

    /// Sets [`share`](Self#structfield.share).
    #[must_use]
    pub fn share(mut self, share: u64) -> Self {
        self.share = share;
        self
    }

    /// Sets [`hold`](Self#structfield.hold).
    #[must_use]
    pub fn hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Sets [`max_keys`](Self#structfield.max_keys).
    #[must_use]
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }
}
