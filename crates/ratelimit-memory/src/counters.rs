//! Numbers of a store that change all the time, each on cache lines of its own: the rest of the store never changes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of the shard that is swept next.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Walk(AtomicUsize);

impl Walk {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, shard: usize) {
        self.0.store(shard, Ordering::Relaxed);
    }
}

/// The number of evicted meters that still counted.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Evicted(AtomicU64);

impl Evicted {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, meters: u64) {
        self.0.fetch_add(meters, Ordering::Relaxed);
    }
}
