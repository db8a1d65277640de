//! Shards behind their locks, and what can be known of them without the locks.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratelimit_core::{Mode, Timestamp, Verdict};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::ask::Ask;
use crate::fingerprint::Fingerprint;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::slot::{NEVER, Slot, has_passed};

/// The shards of a store.
pub(crate) struct Lots {
    lots: Box<[Lot]>,
    /// Side by side, so that a walk passes many shards in which there is nothing to forget for one look at memory.
    glances: Box<[Glance]>,
}

/// What can be known of a shard at a glance.
struct Glance {
    /// How many meters it holds.
    len: AtomicU32,
    /// From which second on there may be something to forget.
    due: AtomicU32,
}

/// A shard behind its lock, and what it refused last beside it. On cache lines of its own, so that neighbours do not slow
/// each other down; what is read without the lock is not on that of the lock.
#[repr(C, align(128))]
pub(crate) struct Lot {
    shard: SpinMutex<Shard>,
    refusal: Refusal,
}

const _: () = assert!(size_of::<Lot>() == 256);

/// How long to stay away from a shard that somebody has: on today's processors one to five microseconds.
const PAUSES: u32 = 128;

/// How often to try again before sleeping.
const WAITS: u32 = 8;

/// How long to sleep before trying again; whoever has the shard for longer has been put aside by the operating system.
const SLEEP: Duration = Duration::from_micros(50);

/// A shard whose lock is held.
pub(crate) struct Held<'a> {
    shard: SpinMutexGuard<'a, Shard>,
    lots: &'a Lots,
}

impl Lots {
    /// So many, a power of two.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            lots: (0..count).map(Lot::new).collect(),
            glances: (0..count)
                .map(|_| Glance { len: AtomicU32::new(0), due: AtomicU32::new(NEVER) })
                .collect(),
        }
    }

    /// How many shards there are.
    pub(crate) fn count(&self) -> usize {
        self.lots.len()
    }

    /// How many meters there are in all, without waiting for the locks.
    pub(crate) fn len(&self) -> usize {
        self.glances.iter().map(|glance| glance.len.load(Ordering::Relaxed) as usize).sum()
    }

    /// Whether there may be a meter to forget in one of some shards, without waiting for their locks.
    #[inline]
    pub(crate) fn may_forget(&self, numbers: Range<usize>, now: Timestamp) -> bool {
        let due = self.glances[numbers].iter().map(|glance| glance.due.load(Ordering::Relaxed));
        has_passed(due.fold(NEVER, u32::min), now)
    }

    /// The number of the shard that a meter falls to.
    #[inline]
    pub(crate) fn number_of(&self, print: Fingerprint) -> usize {
        print.shard(self.lots.len())
    }

    /// The shard that a meter falls to, behind its lock.
    #[inline]
    pub(crate) fn lot_of(&self, print: Fingerprint) -> &Lot {
        &self.lots[self.number_of(print)]
    }

    /// A shard. A thread that panicked while it held the lock has left a shard that still decides; nobody else has to
    /// panic for it.
    #[inline]
    pub(crate) fn hold<'s>(&'s self, lot: &'s Lot) -> Held<'s> {
        self.try_hold(lot).unwrap_or_else(|| self.wait(lot))
    }

    /// The shard of this number, likewise.
    pub(crate) fn lock(&self, number: usize) -> Held<'_> {
        self.hold(&self.lots[number])
    }

    /// A shard, as soon as others leave it.
    ///
    /// To hand a meter from core to core takes longer than to decide on it. So who comes second stays away for as long as
    /// the first needs for some dozen decisions: both get more done than if they took turns. Who has waited several times
    /// in vain sleeps, so that whoever has the shard gets the processor even where that takes a lower priority.
    #[cold]
    fn wait<'s>(&'s self, lot: &'s Lot) -> Held<'s> {
        for _ in 0..WAITS {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(held) = self.try_hold(lot) {
                return held;
            }
        }
        loop {
            std::thread::sleep(SLEEP);
            if let Some(held) = self.try_hold(lot) {
                return held;
            }
        }
    }

    /// A shard, unless somebody has it.
    #[inline]
    fn try_hold<'s>(&'s self, lot: &'s Lot) -> Option<Held<'s>> {
        lot.shard.try_lock().map(|shard| Held { shard, lots: self })
    }

    /// The shard of this number, likewise.
    pub(crate) fn try_lock(&self, number: usize) -> Option<Held<'_>> {
        self.try_hold(&self.lots[number])
    }

    /// Tells those who look at a shard without the lock what has changed.
    #[inline(never)]
    fn tell(&self, shard: &mut Shard) {
        shard.has_told();
        let number = shard.number();
        let glance = &self.glances[number];
        glance.len.store(u32::try_from(shard.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        glance.due.store(shard.due(), Ordering::Relaxed);
        if let Some(shown) = shard.refusal_news() {
            self.lots[number].refusal.show(shown.as_ref());
        }
    }
}

impl Lot {
    fn new(number: usize) -> Self {
        Self { shard: SpinMutex::new(Shard::new(number)), refusal: Refusal::default() }
    }

    /// The verdict on a claim that its shard's last refusal shows to be refused. Takes no lock.
    #[inline]
    pub(crate) fn refuses<'m>(
        &self,
        print: Fingerprint,
        mode: Mode,
        ask: impl FnOnce() -> Ask<'m>,
    ) -> Option<Verdict> {
        if mode == Mode::Force {
            return None;
        }
        refused_by(self.refusal.of(print)?, ask())
    }
}

/// The verdict on a claim, if it is refused by a meter that was as this slot says.
#[inline(never)]
fn refused_by(mut slot: Slot, ask: Ask<'_>) -> Option<Verdict> {
    let (admitted, verdict) = slot.claim(Ask { mode: Mode::Peek, ..ask })?;
    (!admitted).then_some(verdict)
}

impl Deref for Held<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for Held<'_> {
    /// Before the lock is let go: who comes after this change is not told what was before.
    #[inline]
    fn drop(&mut self) {
        if self.shard.is_news() {
            self.lots.tell(&mut self.shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_panic_of_one_thread_is_no_panic_of_another() {
        let lots = Lots::new(1);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _held = lots.lock(0);
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
        });
        assert!(panicked.is_err());
        assert_eq!(lots.lock(0).len(), 0);
        assert!(lots.try_lock(0).is_some());
        let held = lots.lock(0);
        assert!(lots.try_lock(0).is_none());
        drop(held);
    }

    #[test]
    fn a_shard_that_is_held_for_long_is_had_in_the_end() {
        let lots = Lots::new(1);
        let held = lots.lock(0);
        let (waits, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    waits.fetch_add(1, Ordering::SeqCst);
                    drop(lots.lock(0));
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            while waits.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            // Long enough for all of them to sleep several times.
            std::thread::sleep(SLEEP * 100);
            assert_eq!(done.load(Ordering::SeqCst), 0);
            drop(held);
        });
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }
}
