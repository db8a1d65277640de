//! A sharded table of what a node knows of each meter.

use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use ratelimit_core::MeterId;

const SHARDS: usize = 64;

/// A meter's name that owns its parts, in one piece: a look at it is a look at one place in memory, and a copy of it is
/// none of the bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Name {
    bytes: Arc<[u8]>,
    namespace_end: usize,
    scope_end: usize,
}

impl Name {
    pub(crate) fn new(id: &MeterId<'_>) -> Self {
        let parts = [id.namespace.as_bytes(), id.scope.as_bytes(), id.key];
        let namespace_end = id.namespace.len();
        Self { bytes: parts.concat().into(), namespace_end, scope_end: namespace_end + id.scope.len() }
    }

    pub(crate) fn id(&self) -> MeterId<'_> {
        let (names, key) = self.bytes.split_at(self.scope_end);
        let (namespace, scope) = names.split_at(self.namespace_end);
        // They were text when they came.
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        MeterId { namespace: text(namespace), scope: text(scope), key }
    }

    fn is(&self, id: &MeterId<'_>) -> bool {
        let ends = (id.namespace.len(), id.namespace.len() + id.scope.len());
        let (names, key) = self.bytes.split_at(self.scope_end);
        let (namespace, scope) = names.split_at(self.namespace_end);
        ends == (self.namespace_end, self.scope_end)
            && key == id.key
            && scope == id.scope.as_bytes()
            && namespace == id.namespace.as_bytes()
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.id().fmt(f)
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
        shard.find_mut(hash, |entry| entry.name.is(id)).map(|entry| look(&mut entry.value))
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
        if let Some(entry) = shard.find_mut(hash, |entry| entry.name.is(id)) {
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
        if let Ok(entry) = self.shard(hash).find_entry(hash, |entry| entry.name.is(id)) {
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
