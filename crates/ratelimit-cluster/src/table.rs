//! A sharded table of values by meter name.

use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use ratelimit_core::MeterId;

const SHARDS: usize = 64;

/// An owned meter name in one piece of memory. A short name is stored inline; cloning a long one does not copy its bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    Short { length: u8, namespace_end: u8, scope_end: u8, bytes: [u8; SHORT] },
    Long { bytes: Arc<[u8]>, namespace_end: usize, scope_end: usize },
}

/// The most bytes of a short name, chosen so that the cold part of a meter fits a cache line.
const SHORT: usize = 36;

const _: () = assert!(size_of::<Name>() == 40);

impl Name {
    pub(crate) fn new(id: &MeterId<'_>) -> Self {
        let parts = [id.namespace.as_bytes(), id.scope.as_bytes(), id.key];
        let namespace_end = id.namespace.len();
        let scope_end = namespace_end + id.scope.len();
        let length = scope_end + id.key.len();
        let short = |end: usize| u8::try_from(end).ok().filter(|end| usize::from(*end) <= SHORT);
        match [length, namespace_end, scope_end].map(short) {
            [Some(length), Some(namespace_end), Some(scope_end)] => {
                let mut bytes = [0; SHORT];
                let all = parts.into_iter().flatten();
                bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
                Self::Short { length, namespace_end, scope_end, bytes }
            }
            _ => Self::Long { bytes: parts.concat().into(), namespace_end, scope_end },
        }
    }

    /// The bytes, and the ends of the name space and the scope in them.
    #[inline]
    fn parts(&self) -> (&[u8], usize, usize) {
        match self {
            Self::Short { length, namespace_end, scope_end, bytes } => {
                (&bytes[..usize::from(*length)], (*namespace_end).into(), (*scope_end).into())
            }
            Self::Long { bytes, namespace_end, scope_end } => (bytes, *namespace_end, *scope_end),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> MeterId<'_> {
        let (bytes, namespace_end, scope_end) = self.parts();
        let (names, key) = bytes.split_at(scope_end);
        let (namespace, scope) = names.split_at(namespace_end);
        // They were created from text.
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        MeterId { namespace: text(namespace), scope: text(scope), key }
    }

    fn is(&self, id: &MeterId<'_>) -> bool {
        let (bytes, namespace_end, scope_end) = self.parts();
        let (names, key) = bytes.split_at(scope_end);
        let (namespace, scope) = names.split_at(namespace_end);
        let ends = (id.namespace.len(), id.namespace.len() + id.scope.len());
        ends == (namespace_end, scope_end)
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

/// Values by meter, up to a bound.
pub(crate) struct Table<V> {
    shards: Box<[Mutex<HashTable<Entry<V>>>]>,
    hasher: RandomState,
    /// The most values in one shard.
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

    /// Calls `f` with the value of a meter, which is inserted if there is none. `None` if the table is full; a full shard first
    /// drops the values that are `is_expired`.
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
        let entry = Entry { name: Name::new(id), value: new() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_names_come_back() {
        for (namespace, scope, length) in
            [("", "", 0), ("n", "fixed:1s", 27), ("n", "fixed:1s", 28), ("", "s", 300)]
        {
            let key = vec![7; length];
            let id = MeterId { namespace, scope, key: &key };
            let name = Name::new(&id);
            assert_eq!((name.id(), name.is(&id), &name), (id, true, &name.clone()));
            assert_eq!(matches!(name, Name::Short { .. }), length < 28, "{length}");
            for other in [MeterId { namespace: "x", ..id }, MeterId { key: b"x", ..id }] {
                assert!(name != Name::new(&other) && !name.is(&other));
            }
        }
        let id = |namespace, scope| MeterId { namespace, scope, key: b"k" };
        assert!(Name::new(&id("a", "b")) != Name::new(&id("", "ab")));
    }
}
