//! A minimal limiter, written by hand: sharded mutexes around tables of boxed keys, and plain GCRA.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use quanta::Clock;
use std::hash::BuildHasher as _;

use super::contestant::{Allow, Contestant, Limiter};
use crate::keys::Key;

const SHARDS: usize = 64;

pub(crate) struct Sharded;

impl Contestant for Sharded {
    type Limiter = Floor;
    type Short = Floor;

    fn build(&self, allow: Allow) -> Floor {
        Floor::new(3_600_000_000_000 / u64::from(allow.units()), u64::from(allow.units()))
    }

    fn short(&self) -> Floor {
        Floor::new(600_000_000, 100)
    }
}

pub(crate) struct Floor {
    shards: Box<[Shard]>,
    hash: RandomState,
    clock: Clock,
    start: u64,
    /// The skipped nanoseconds.
    skipped: AtomicU64,
    interval: u64,
    tolerance: u64,
}

#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<HashTable<(Box<str>, u64)>>);

impl Shard {
    fn lock(&self) -> MutexGuard<'_, HashTable<(Box<str>, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Floor {
    fn new(interval: u64, burst: u64) -> Self {
        let clock = Clock::new();
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hash: RandomState::default(),
            start: clock.raw(),
            clock,
            skipped: AtomicU64::new(0),
            interval,
            tolerance: interval * burst,
        }
    }

    fn now(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw()) + self.skipped.load(Ordering::Relaxed)
    }
}

impl Limiter for Floor {
    #[inline]
    fn check(&self, key: &Key) -> bool {
        let hash = self.hash.hash_one(key.text.as_str());
        let now = self.now();
        // Uses neither the bits of the table's index (the lowest) nor those of its tag (the highest).
        let shard = usize::from(hash.to_be_bytes()[1]) % SHARDS;
        let mut shard = self.shards[shard].lock();
        if let Some((_, arrival)) = shard.find_mut(hash, |(known, _)| **known == *key.text) {
            let next = (*arrival).max(now) + self.interval;
            let fits = next <= now + self.tolerance;
            if fits {
                *arrival = next;
            }
            return fits;
        }
        let entry = (key.text.as_str().into(), now + self.interval);
        shard.insert_unique(hash, entry, |(known, _)| self.hash.hash_one(&**known));
        true
    }

    fn expire(&self) {
        self.skipped.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    }

    fn clean(&self) {
        let now = self.now();
        for shard in &self.shards {
            shard.lock().retain(|(_, arrival)| *arrival > now);
        }
    }
}
