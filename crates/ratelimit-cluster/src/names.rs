//! A sharded table of what a node knows of each meter.

use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use ratelimit_core::MeterId;

const SHARDS: usize = 64;

/// A meter's name that owns its parts.
pub(crate) struct Name {
    namespace: Box<str>,
    scope: Box<str>,
    key: Box<[u8]>,
}

impl Name {
    pub(crate) fn new(id: &MeterId<'_>) -> Self {
        Self { namespace: id.namespace.into(), scope: id.scope.into(), key: id.key.into() }
    }

    pub(crate) fn id(&self) -> MeterId<'_> {
        MeterId { namespace: &self.namespace, scope: &self.scope, key: &self.key }
    }
}

struct Entry<V> {
    name: Name,
    value: V,
}

/// Values by meter; never more than a bound.
pub(crate) struct Table<V> {
    shards: Box<[Mutex<HashTable<Entry<V>>>]>,
    hasher: RandomState,
    /// The most values in one shard.
    most: usize,
}

impl<V> Table<V> {
    pub(crate) fn new(max_keys: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            most: max_keys.div_ceil(SHARDS),
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Entry<V>>> {
        // The table itself goes by the lower and the uppermost bits.
        let place = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        lock(&self.shards[place])
    }

    /// Looks at the value of a meter, if there is one.
    pub(crate) fn with<R>(&self, id: &MeterId<'_>, look: impl FnOnce(&mut V) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(id);
        let mut shard = self.shard(hash);
        shard.find_mut(hash, |entry| entry.name.id() == *id).map(|entry| look(&mut entry.value))
    }

    /// Looks at the value of a meter, which is made if there is none. `None` if there is no room for it: a full shard
    /// first drops what `is_over`.
    pub(crate) fn with_or_new<R>(
        &self,
        id: &MeterId<'_>,
        is_over: impl Fn(&V) -> bool,
        new: impl FnOnce() -> V,
        look: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let hash = self.hasher.hash_one(id);
        let mut shard = self.shard(hash);
        if let Some(entry) = shard.find_mut(hash, |entry| entry.name.id() == *id) {
            return Some(look(&mut entry.value));
        }
        if shard.len() >= self.most {
            shard.retain(|entry| !is_over(&entry.value));
            if shard.len() >= self.most {
                return None;
            }
        }
        let entry = Entry { name: Name::new(id), value: new() };
        let hash_of = |entry: &Entry<V>| self.hasher.hash_one(entry.name.id());
        Some(look(&mut shard.insert_unique(hash, entry, hash_of).into_mut().value))
    }

    /// Forgets a meter.
    pub(crate) fn remove(&self, id: &MeterId<'_>) {
        let hash = self.hasher.hash_one(id);
        if let Ok(entry) = self.shard(hash).find_entry(hash, |entry| entry.name.id() == *id) {
            entry.remove();
        }
    }

    /// Goes through all meters, a shard at a time, and drops those for which `keep` is false.
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
