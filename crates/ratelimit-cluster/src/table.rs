//! A sharded table of values by meter name.

use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use ratelimit_core::Timestamp;
use ratelimit_core::kit::OwnedName;
use ratelimit_core::store::MeterId;

const SHARDS: usize = 64;

/// How long a full shard does not look for expired values again.
const PURGE_EVERY: Duration = Duration::from_secs(1);

/// One part of the values.
struct Shard<V> {
    entries: HashTable<Entry<V>>,
    /// When a full shard may look for expired values again.
    purge_at: Timestamp,
}

struct Entry<V> {
    name: OwnedName,
    value: V,
}

/// Values by meter, up to a bound.
pub(crate) struct Table<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    hasher: RandomState,
    /// The maximum number of values in one shard.
    max_per_shard: usize,
}

impl<V> Table<V> {
    pub(crate) fn new(max_keys: usize) -> Self {
        let shard = || Mutex::new(Shard { entries: HashTable::new(), purge_at: Timestamp::EPOCH });
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher: RandomState::default(),
            max_per_shard: max_keys.div_ceil(SHARDS),
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<V>> {
        // The hash table uses the lowest and the highest bits.
        let place = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        lock(&self.shards[place])
    }

    /// Calls `f` with the value of a meter, if there is one.
    pub(crate) fn with<R>(&self, id: &MeterId<'_>, f: impl FnOnce(&mut V) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(id);
        let entries = &mut self.shard(hash).entries;
        entries.find_mut(hash, |entry| entry.name.is(id)).map(|entry| f(&mut entry.value))
    }

    /// Calls `f` with the value of a meter, which is inserted if there is none. A full shard first drops the values that
    /// are `is_expired`, at most once a second. `None` if the shard of the meter is still full.
    pub(crate) fn with_or_new<R>(
        &self,
        id: &MeterId<'_>,
        now: Timestamp,
        is_expired: impl Fn(&V) -> bool,
        new: impl FnOnce() -> V,
        f: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let hash = self.hasher.hash_one(id);
        let Shard { entries, purge_at } = &mut *self.shard(hash);
        if let Some(entry) = entries.find_mut(hash, |entry| entry.name.is(id)) {
            return Some(f(&mut entry.value));
        }
        if entries.len() >= self.max_per_shard {
            if now >= *purge_at {
                *purge_at = now + PURGE_EVERY;
                entries.retain(|entry| !is_expired(&entry.value));
            }
            if entries.len() >= self.max_per_shard {
                return None;
            }
        }
        let entry = Entry { name: OwnedName::new(id), value: new() };
        let hash_of = |entry: &Entry<V>| self.hasher.hash_one(entry.name.id());
        Some(f(&mut entries.insert_unique(hash, entry, hash_of).into_mut().value))
    }

    /// Removes a meter.
    pub(crate) fn remove(&self, id: &MeterId<'_>) {
        let hash = self.hasher.hash_one(id);
        if let Ok(entry) = self.shard(hash).entries.find_entry(hash, |entry| entry.name.is(id)) {
            entry.remove();
        }
    }

    /// Visits all meters, one shard at a time, and drops those for which `keep` is false.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&MeterId<'_>, &mut V) -> bool) {
        for shard in &self.shards {
            let entries = &mut lock(shard).entries;
            entries.retain(|entry| keep(&entry.name.id(), &mut entry.value));
            let length = entries.len();
            if entries.capacity() > 64 && entries.capacity() / 8 > length {
                entries.shrink_to(length * 2, |entry| self.hasher.hash_one(entry.name.id()));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_full_shard_looks_for_expired_values_at_most_once_a_second() {
        let (table, looked) = (Table::new(64 * 100), Cell::new(0));
        let insert = |key: u32, millis: u64| {
            let now = Timestamp::from_secs(1_800_000_000) + Duration::from_millis(millis);
            let key = key.to_be_bytes();
            let is_expired = |ends: &u64| {
                looked.set(looked.get() + 1);
                *ends < millis
            };
            table.with_or_new(
                &MeterId { namespace: "", scope: "", key: &key },
                now,
                is_expired,
                || 10_000,
                |_| (),
            )
        };
        for key in 0..20_000 {
            insert(key, u64::from(key) / 4); // within five seconds
        }
        assert_eq!(table.len(), 64 * 100);
        assert!(looked.get() <= 6 * 64 * 100, "{} values", looked.get());
        assert!(insert(20_000, 10_001).is_some());
        assert_eq!(table.len(), 63 * 100 + 1, "those of its shard have expired");
    }
}
