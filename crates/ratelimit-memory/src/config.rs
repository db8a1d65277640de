//! How a store is laid out, and what bounds it.

/// How a [`MemoryStore`](crate::MemoryStore) is laid out, and what bounds it.
///
/// ```
/// use ratelimit_memory::{MemoryConfig, MemoryStore, WhenFull};
///
/// let store = MemoryStore::with_config(MemoryConfig {
///     max_keys: Some(1_000_000),
///     when_full: WhenFull::Refuse,
///     ..MemoryConfig::default()
/// });
/// assert!(store.is_empty());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Into how many parts the store is divided, each behind a lock of its own: rounded up to a power of two, at
    /// most 65,536.
    ///
    /// More parts mean less waiting for each other, and shorter pauses when a part grows; each takes 256 bytes
    /// while it is empty.
    pub shards: usize,
    /// The most meters kept at once: one for each key and limit. `None` sets no bound.
    ///
    /// There are never more. Each part may hold an equal share, rounded down; since keys do not spread quite evenly,
    /// some parts are full a few percent before the whole is. There are as many fewer parts as it takes for a share
    /// to be at least 256 meters.
    pub max_keys: Option<usize>,
    /// What happens to a new key when `max_keys` is reached.
    pub when_full: WhenFull,
}

/// What happens to a new key when there is no room for it.
///
/// A few of the meters that are there are looked at first, others each time, and one that has expired goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// Of those few the one goes that would be forgotten soonest, and of equals the one that was charged least: an idle
    /// key's rather than a busy one's.
    ///
    /// The key that was forgotten starts anew, so it may be admitted more than its limit allows. A bound well above
    /// the number of keys that are active within a period makes that rare.
    #[default]
    Evict,
    /// The check fails with [`ErrorKind::Full`](ratelimit_core::ErrorKind::Full), and nothing is charged. Keys that
    /// are known are decided as ever.
    Refuse,
}

/// The fewest meters that a part of a bounded store has room for, unless there is only one part.
const SMALLEST_SHARE: usize = 256;

const MOST_SHARDS: usize = 1 << 16;

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { shards: 1_024, max_keys: None, when_full: WhenFull::Evict }
    }
}

impl MemoryConfig {
    /// The same with the number of shards that there will be.
    pub(crate) fn settled(self) -> Self {
        let mut shards = self.shards.clamp(1, MOST_SHARDS).next_power_of_two();
        while shards > 1 && self.max_keys.is_some_and(|most| most / shards < SMALLEST_SHARE) {
            shards /= 2;
        }
        Self { shards, ..self }
    }

    /// The most meters in one shard, for a settled configuration. What a shard counts in 32 bits bounds it too.
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
            let config = MemoryConfig { shards, max_keys, ..MemoryConfig::default() }.settled();
            assert_eq!((config.shards, config.share()), (settled, share), "{shards} {max_keys:?}");
        }
    }
}
