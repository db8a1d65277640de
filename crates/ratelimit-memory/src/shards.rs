//! Shards behind their locks, and the values that can be read without the locks.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU32, Ordering};

use ratelimit_core::Timestamp;
use ratelimit_core::store::{Mode, Verdict};

use crate::kit::expiry::{NEVER, has_passed};
use crate::kit::{Demand, Fingerprint, SpinGuard, SpinLock};
use crate::refusal::Refusal;
use crate::shard::Shard;

/// The shards of a store.
pub(crate) struct Shards {
    shards: Box<[ShardCell]>,
    /// In one array, so that a sweep skips many shards without expired meters with one memory access.
    glances: Box<[Glance]>,
}

/// The part of a shard's state that can be read without its lock.
struct Glance {
    /// The number of meters.
    len: AtomicU32,
    /// The second from which on there may be expired meters.
    due: AtomicU32,
}

/// A shard behind its lock, and its last refusal. On its own cache lines, so that neighbours do not slow each other
/// down; what is read without the lock is not on the lock's cache line.
#[repr(C, align(128))]
pub(crate) struct ShardCell {
    shard: SpinLock<Shard>,
    refusal: Refusal,
}

const _: () = assert!(size_of::<ShardCell>() == 256);

/// A shard whose lock is held.
pub(crate) struct ShardGuard<'a> {
    shard: SpinGuard<'a, Shard>,
    shards: &'a Shards,
}

impl Shards {
    /// Creates `count` shards; a power of two.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            shards: (0..count).map(ShardCell::new).collect(),
            glances: (0..count)
                .map(|_| Glance { len: AtomicU32::new(0), due: AtomicU32::new(NEVER) })
                .collect(),
        }
    }

    /// The number of shards.
    pub(crate) fn count(&self) -> usize {
        self.shards.len()
    }

    /// The number of meters in all shards, without waiting for the locks.
    pub(crate) fn len(&self) -> usize {
        self.glances.iter().map(|glance| glance.len.load(Ordering::Relaxed) as usize).sum()
    }

    /// Whether one of these shards may have an expired meter, without waiting for their locks.
    #[inline]
    pub(crate) fn may_forget(&self, numbers: Range<usize>, now: Timestamp) -> bool {
        let due = self.glances[numbers].iter().map(|glance| glance.due.load(Ordering::Relaxed));
        has_passed(due.fold(NEVER, u32::min), now)
    }

    /// The number of the shard that contains a meter.
    #[inline]
    pub(crate) fn number_of(&self, fingerprint: Fingerprint) -> usize {
        fingerprint.shard(self.shards.len())
    }

    /// The shard that contains a meter, behind its lock.
    #[inline]
    pub(crate) fn cell_of(&self, fingerprint: Fingerprint) -> &ShardCell {
        &self.shards[self.number_of(fingerprint)]
    }

    /// Locks a shard. A panic of a thread that held the lock does not poison it: the shard can still decide.
    #[inline]
    pub(crate) fn lock_cell<'s>(&'s self, cell: &'s ShardCell) -> ShardGuard<'s> {
        ShardGuard { shard: cell.shard.lock(), shards: self }
    }

    /// Locks the shard of this number in the same way.
    pub(crate) fn lock(&self, number: usize) -> ShardGuard<'_> {
        self.lock_cell(&self.shards[number])
    }

    /// Locks the shard of this number if no other thread holds it.
    pub(crate) fn try_lock(&self, number: usize) -> Option<ShardGuard<'_>> {
        self.shards[number].shard.try_lock().map(|shard| ShardGuard { shard, shards: self })
    }

    /// Publishes the changes for threads that read a shard without its lock.
    #[inline(never)]
    fn publish(&self, shard: &mut Shard) {
        shard.has_published();
        let number = shard.number();
        let glance = &self.glances[number];
        glance.len.store(u32::try_from(shard.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        glance.due.store(shard.due(), Ordering::Relaxed);
        if let Some(shown) = shard.refusal_news() {
            self.shards[number].refusal.publish(shown.as_ref());
        }
    }
}

impl ShardCell {
    fn new(number: usize) -> Self {
        Self { shard: SpinLock::new(Shard::new(number)), refusal: Refusal::default() }
    }

    /// Returns the verdict if the shard's last refusal shows that this claim is refused. Takes no lock.
    #[inline]
    pub(crate) fn refuses(&self, fingerprint: Fingerprint, demand: Demand<'_>) -> Option<Verdict> {
        if demand.mode == Mode::Force {
            return None;
        }
        let mut slot = self.refusal.of(fingerprint)?;
        let (admitted, verdict) = slot.claim(Demand { mode: Mode::Peek, ..demand })?;
        (!admitted).then_some(verdict)
    }
}

impl Deref for ShardGuard<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for ShardGuard<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for ShardGuard<'_> {
    /// Publishes changes before the lock is released, so that no later reader sees the previous state.
    #[inline]
    fn drop(&mut self) {
        if self.shard.must_publish() {
            self.shards.publish(&mut self.shard);
        }
    }
}
