//! The configuration of `Leased`.

use std::time::Duration;

/// How much a node leases, and for how long it holds units that it does not spend.
///
/// ```
/// use ratelimit_cluster::LeaseConfig;
///
/// let config = LeaseConfig::default().max_lease(500);
/// assert_eq!(config.min_limit, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// Claims on limits of fewer units go directly to the store. 100 by default.
    pub min_limit: u64,
    /// The maximum number of units in one lease, and so the maximum number of units of a meter that a crash loses until the
    /// meter's window has passed. 10,000 by default.
    pub max_lease: u64,
    /// A lease has at most the `share`-th part of the units that remain in the store. 8 by default; more nodes need a
    /// larger number.
    pub share: u64,
    /// If a lease is spent within this time, the next one is twice as large, otherwise half as large. One second by
    /// default.
    pub target_duration: Duration,
    /// The maximum number of meters with a lease. Claims on other meters go directly to the store. 1,000,000 by default.
    pub max_keys: usize,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            min_limit: 100,
            max_lease: 10_000,
            share: 8,
            target_duration: Duration::from_secs(1),
            max_keys: 1_000_000,
        }
    }
}

impl LeaseConfig {
    ratelimit_core::kit::setters! {
        min_limit: u64,
        max_lease: u64,
        share: u64,
        target_duration: Duration,
        max_keys: usize,
    }
}
