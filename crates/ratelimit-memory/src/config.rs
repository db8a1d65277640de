//! The configuration of a store: its shards, and its bound.

/// The configuration of a [`MemoryStore`](crate::MemoryStore): its shards, and a bound on the number of meters.
///
/// ```
/// use ratelimit_memory::{MemoryConfig, MemoryStore, WhenFull};
///
/// let store = MemoryStore::with_config(
///     MemoryConfig::default().max_keys(1_000_000).when_full(WhenFull::Refuse),
/// );
/// assert!(store.is_empty());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// The number of shards, each behind its own lock: rounded up to a power of two, at most 65,536; 1,024 by default.
    ///
    /// More shards mean less lock contention, and shorter pauses when a shard grows. An empty shard takes 256 bytes.
    pub shards: usize,
    /// The maximum number of meters: one for each key and limit. `None` means no bound, and is the default.
    ///
    /// It is never exceeded. Each shard may hold an equal share, rounded down. Since keys are not spread quite evenly,
    /// some shards are full a few percent before the whole store is. The number of shards is reduced until a share is
    /// at least 256 meters.
    pub max_keys: Option<usize>,
    /// What happens to a new key when its shard has reached its share of `max_keys`. [`WhenFull::Evict`] by default.
    pub when_full: WhenFull,
}

/// What happens to a new key when there is no room for it.
///
/// In both cases the store first checks a small sample of meters, a different one each time, and removes one that has
/// expired. The variants say what it does if none has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// Evict the meter of the sample whose loss matters least. An evicted key starts with an empty count, so it may be
    /// admitted more than its limit allows. This is rare if the bound is well above the number of keys that are active within
    /// a period.
    ///
    /// A meter that is used up, or a ban, is evicted only if all other meters of the sample, 15, are used up too, and would
    /// expire later. So a flood of new keys does not free a client that is being refused, unless most of the new keys use up
    /// their limits as well. A meter counts as used up at the latest when all of its limit is used, and not before more than half
    /// is, as of its newest charge. Of the others, the one goes first with the least of its limit used and the shortest
    /// time until it expires (the used share squared, times the time).
    ///
    /// A check never evicts its own meters. If they alone need more room than a shard has, it fails as with `Refuse`; with
    /// `max_keys` of at least 64 this does not happen.
    #[default]
    Evict,
    /// The check fails with [`ErrorKind::Full`](ratelimit_core::ErrorKind::Full), and nothing is charged. Keys that have a
    /// meter are decided as usual.
    Refuse,
}

/// The minimum number of meters in a shard of a bounded store, unless there is only one shard.
const SMALLEST_SHARE: usize = 256;

const MOST_SHARDS: usize = 1 << 16;

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { shards: 1_024, max_keys: None, when_full: WhenFull::Evict }
    }
}

impl MemoryConfig {
    ratelimit_core::kit::setters! {
        shards: usize,
        max_keys: impl Into<Option<usize>>,
        when_full: WhenFull,
    }

    /// The same configuration with the actual number of shards.
    pub(crate) fn settled(self) -> Self {
        let mut shards = self.shards.clamp(1, MOST_SHARDS).next_power_of_two();
        while shards > 1 && self.max_keys.is_some_and(|most| most / shards < SMALLEST_SHARE) {
            shards /= 2;
        }
        Self { shards, ..self }
    }

    /// The maximum number of meters in one shard, for a settled configuration. Also bounded by the 32-bit counts of a
    /// shard.
    pub(crate) fn share(&self) -> usize {
        self.max_keys.map_or(usize::MAX, |most| most / self.shards).min(u32::MAX as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_a_power_of_two_and_their_shares_stay_within_the_bound() {
        for (shards, max_keys, settled, share) in [
            (0, None, 1, u32::MAX as usize),
            (5, None, 8, u32::MAX as usize),
            (usize::MAX, None, MOST_SHARDS, u32::MAX as usize),
            (1_024, Some(0), 1, 0),
            (1_024, Some(1), 1, 1),
            (1_024, Some(511), 1, 511),
            (1_024, Some(513), 2, 256),
            (4, Some(1_000_001), 4, 250_000),
        ] {
            let config = MemoryConfig::default().shards(shards).max_keys(max_keys).settled();
            assert_eq!((config.shards, config.share()), (settled, share), "{shards} {max_keys:?}");
        }
    }
}
