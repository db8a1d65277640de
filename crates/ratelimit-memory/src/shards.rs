//! Shards behind their locks, and what is readable without the locks.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratelimit_core::{Mode, Timestamp, Verdict};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::demand::Demand;
use crate::fingerprint::Fingerprint;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::slot::{NEVER, Slot, has_passed};

/// The shards of a store.
pub(crate) struct Shards {
    shards: Box<[ShardCell]>,
    /// In one array, so that a sweep skips many shards without expired meters with one memory access.
    glances: Box<[Glance]>,
}

/// The part of a shard's state that is readable without its lock.
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
    shard: SpinMutex<Shard>,
    refusal: Refusal,
}

const _: () = assert!(size_of::<ShardCell>() == 256);

/// How long to back off from a locked shard: one to five microseconds on today's processors.
const PAUSES: u32 = 128;

/// How often to retry before sleeping.
const WAITS: u32 = 8;

/// How long to sleep before a retry; a thread that holds a shard for longer has been preempted.
const SLEEP: Duration = Duration::from_micros(50);

/// A shard whose lock is held.
pub(crate) struct ShardGuard<'a> {
    shard: SpinMutexGuard<'a, Shard>,
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

    /// Locks a shard. If a thread panicked while it held the lock, the shard can still decide, so other threads need
    /// not panic.
    #[inline]
    pub(crate) fn lock_cell<'s>(&'s self, cell: &'s ShardCell) -> ShardGuard<'s> {
        self.try_lock_cell(cell).unwrap_or_else(|| self.wait(cell))
    }

    /// Locks the shard of this number in the same way.
    pub(crate) fn lock(&self, number: usize) -> ShardGuard<'_> {
        self.lock_cell(&self.shards[number])
    }

    /// Locks a shard as soon as other threads release it.
    ///
    /// Moving a meter from one core's cache to another's takes longer than deciding on it. So a second thread backs off for as
    /// long as the first needs for some dozen decisions: both get more done than if they alternated. After several failed
    /// attempts it sleeps, so that the thread that holds the shard gets the processor even if it has a lower priority.
    #[cold]
    fn wait<'s>(&'s self, cell: &'s ShardCell) -> ShardGuard<'s> {
        for _ in 0..WAITS {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(held) = self.try_lock_cell(cell) {
                return held;
            }
        }
        loop {
            std::thread::sleep(SLEEP);
            if let Some(held) = self.try_lock_cell(cell) {
                return held;
            }
        }
    }

    /// Locks a shard if no other thread holds it.
    #[inline]
    fn try_lock_cell<'s>(&'s self, cell: &'s ShardCell) -> Option<ShardGuard<'s>> {
        cell.shard.try_lock().map(|shard| ShardGuard { shard, shards: self })
    }

    /// Locks the shard of this number in the same way.
    pub(crate) fn try_lock(&self, number: usize) -> Option<ShardGuard<'_>> {
        self.try_lock_cell(&self.shards[number])
    }

    /// Publishes the changes for threads that read a shard without its lock.
    #[inline(never)]
    fn tell(&self, shard: &mut Shard) {
        shard.has_told();
        let number = shard.number();
        let glance = &self.glances[number];
        glance.len.store(u32::try_from(shard.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        glance.due.store(shard.due(), Ordering::Relaxed);
        if let Some(shown) = shard.refusal_news() {
            self.shards[number].refusal.show(shown.as_ref());
        }
    }
}

impl ShardCell {
    fn new(number: usize) -> Self {
        Self { shard: SpinMutex::new(Shard::new(number)), refusal: Refusal::default() }
    }

    /// Returns the verdict if the shard's last refusal shows that this claim is refused. Takes no lock.
    #[inline]
    pub(crate) fn refuses<'m>(
        &self,
        fingerprint: Fingerprint,
        mode: Mode,
        demand: impl FnOnce() -> Demand<'m>,
    ) -> Option<Verdict> {
        if mode == Mode::Force {
            return None;
        }
        refused_by(self.refusal.of(fingerprint)?, demand())
    }
}

/// Returns the verdict if a meter in the state of this slot refuses the claim.
#[inline(never)]
fn refused_by(mut slot: Slot, demand: Demand<'_>) -> Option<Verdict> {
    let (admitted, verdict) = slot.claim(Demand { mode: Mode::Peek, ..demand })?;
    (!admitted).then_some(verdict)
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
        if self.shard.is_news() {
            self.shards.tell(&mut self.shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_panic_of_one_thread_is_no_panic_of_another() {
        let shards = Shards::new(1);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _held = shards.lock(0);
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
        });
        assert!(panicked.is_err());
        assert_eq!(shards.lock(0).len(), 0);
        assert!(shards.try_lock(0).is_some());
        let held = shards.lock(0);
        assert!(shards.try_lock(0).is_none());
        drop(held);
    }

    #[test]
    fn a_shard_that_is_held_for_long_is_had_in_the_end() {
        let shards = Shards::new(1);
        let held = shards.lock(0);
        let (waits, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    waits.fetch_add(1, Ordering::SeqCst);
                    drop(shards.lock(0));
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            while waits.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            // Long enough for each of them to sleep several times.
            std::thread::sleep(SLEEP * 100);
            assert_eq!(done.load(Ordering::SeqCst), 0);
            drop(held);
        });
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }
}
