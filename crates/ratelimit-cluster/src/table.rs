//! A sharded table of values by meter name.

use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use ratelimit_core::MeterId;
use ratelimit_core::kit::OwnedName;

const SHARDS: usize = 64;

struct Entry<V> {
    name: OwnedName,
    value: V,
}

/// Values by meter, up to a bound.
pub(crate) struct Table<V> {
    shards: Box<[Mutex<HashTable<Entry<V>>>]>,
    hasher: RandomState,
    /// The maximum number of values in one shard.
    max_per_shard: usize,
}

impl<V> Table<V> {
    pub(crate) fn new(max_keys: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            max_per_shard: max_keys.div_ceil(SHARDS),
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Entry<V>>> {
        // The hash table uses the lowest and the highest bits.
        let place = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        lock(&self.shards[place])
    }

    /// Calls `f` with the value of a meter, if there is one.
    pub(crate) fn with<R>(&self, id: &MeterId<'_>, f: impl FnOnce(&mut V) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(id);
        let mut shard = self.shard(hash);
        shard.find_mut(hash, |entry| entry.name.is(id)).map(|entry| f(&mut entry.value))
    }

    /// Calls `f` with the value of a meter, which is inserted if there is none. A full shard first drops the values that
    /// are `is_expired`. `None` if the shard of the meter is still full.
    pub(crate) fn with_or_new<R>(
        &self,
        id: &MeterId<'_>,
        is_expired: impl Fn(&V) -> bool,
        new: impl FnOnce() -> V,
        f: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let hash = self.hasher.hash_one(id);
        let mut shard = self.shard(hash);
        if let Some(entry) = shard.find_mut(hash, |entry| entry.name.is(id)) {
            return Some(f(&mut entry.value));
        }
        if shard.len() >= self.max_per_shard {
            shard.retain(|entry| !is_expired(&entry.value));
            if shard.len() >= self.max_per_shard {
                return None;
            }
        }
        let entry = Entry { name: OwnedName::new(id), value: new() };
        let hash_of = |entry: &Entry<V>| self.hasher.hash_one(entry.name.id());
        Some(f(&mut shard.insert_unique(hash, entry, hash_of).into_mut().value))
    }

    /// Removes a meter.
    pub(crate) fn remove(&self, id: &MeterId<'_>) {
        let hash = self.hasher.hash_one(id);
        if let Ok(entry) = self.shard(hash).find_entry(hash, |entry| entry.name.is(id)) {
            entry.remove();
        }
    }

    /// Visits all meters, one shard at a time, and drops those for which `keep` is false.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&MeterId<'_>, &mut V) -> bool) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.retain(|entry| keep(&entry.name.id(), &mut entry.value));
            let length = shard.len();
            if shard.capacity() > 64 && shard.capacity() / 8 > length {
                shard.shrink_to(length * 2, |entry| self.hasher.hash_one(entry.name.id()));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
