//! Random durations, to spread what would otherwise happen at the same instant.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A random duration from zero to `most`. Good enough to spread waiters, and needs no random number generator.
pub(crate) fn random_up_to(most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    // Each `RandomState` has different keys.
    let random = RandomState::new().hash_one(());
    Duration::from_nanos(nanos.checked_add(1).map_or(random, |bound| random % bound))
}
