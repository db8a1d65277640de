//! The shards of a ledger behind their locks, and which of them have pending usages.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_memory::kit::{SpinGuard, SpinLock};

use super::shard::Shard;

/// The shards of a ledger.
pub(super) struct Shards {
    shards: Box<[PaddedShard]>,
    /// One bit for each shard that has new pending usages, so that not all shards have to be locked to find them.
    pending: Box<[AtomicU64]>,
}

/// A shard behind its lock, aligned to cache lines.
#[derive(Default)]
#[repr(align(128))]
struct PaddedShard(SpinLock<Shard>);

const _: () = assert!(size_of::<PaddedShard>() == 256);

/// A shard whose lock is held. Records on release whether it has new pending usages.
pub(super) struct LockedShard<'l> {
    shard: SpinGuard<'l, Shard>,
    pending: &'l AtomicU64,
    bit: u64,
}

impl Shards {
    /// `shards` is a power of two.
    pub(super) fn new(shards: usize) -> Self {
        let pending = (0..shards.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { shards: (0..shards).map(|_| PaddedShard::default()).collect(), pending }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(super) fn lock(&self, number: usize) -> LockedShard<'_> {
        self.locked(number, self.shards[number].0.lock())
    }

    /// The shard, unless it is locked.
    #[inline]
    pub(super) fn try_lock(&self, number: usize) -> Option<LockedShard<'_>> {
        self.shards[number].0.try_lock().map(|shard| self.locked(number, shard))
    }

    #[inline]
    fn locked<'l>(&'l self, number: usize, shard: SpinGuard<'l, Shard>) -> LockedShard<'l> {
        LockedShard { shard, pending: &self.pending[number / 64], bit: 1 << (number % 64) }
    }

    /// The numbers of the shards that have pending usages since the last call.
    pub(super) fn take_pending(&self) -> impl Iterator<Item = usize> {
        self.pending.iter().enumerate().flat_map(|(nth, word)| {
            let bits = word.swap(0, Ordering::AcqRel);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| nth * 64 + bit)
        })
    }
}

impl Deref for LockedShard<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for LockedShard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for LockedShard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.shard.take_has_new_pending() {
            self.pending.fetch_or(self.bit, Ordering::AcqRel);
        }
    }
}
