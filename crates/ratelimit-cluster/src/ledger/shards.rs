//! The shards of a ledger behind their locks, and which of them have pending usages.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spin::mutex::{SpinMutex, SpinMutexGuard};

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
struct PaddedShard(SpinMutex<Shard>);

const _: () = assert!(size_of::<PaddedShard>() == 256);

/// Spin-loop hints between two attempts to lock a shard, spin-loop hints in total, and the sleep between later attempts.
const SPIN: u32 = 128;
const MAX_SPINS: u32 = 8 * SPIN;
const SLEEP: Duration = Duration::from_micros(50);

/// A shard whose lock is held. Records on release whether it has new pending usages.
pub(super) struct LockedShard<'l> {
    shard: SpinMutexGuard<'l, Shard>,
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
        self.try_lock(number).unwrap_or_else(|| self.wait(number))
    }

    /// Waits for the lock like the memory store: spins for about a microsecond between attempts, and later sleeps.
    #[cold]
    fn wait(&self, number: usize) -> LockedShard<'_> {
        let mut spins = 0;
        loop {
            if spins < MAX_SPINS {
                spins += SPIN;
                (0..SPIN).for_each(|_| std::hint::spin_loop());
            } else {
                std::thread::sleep(SLEEP);
            }
            if let Some(locked) = self.try_lock(number) {
                return locked;
            }
        }
    }

    /// The shard, unless it is locked.
    #[inline]
    pub(super) fn try_lock(&self, number: usize) -> Option<LockedShard<'_>> {
        self.shards[number].0.try_lock().map(|shard| self.locked(number, shard))
    }

    #[inline]
    fn locked<'l>(&'l self, number: usize, shard: SpinMutexGuard<'l, Shard>) -> LockedShard<'l> {
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
