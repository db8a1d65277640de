//! A shard behind its lock, and how many meters it holds beside the lock.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use ratelimit_core::{Claim, Mode, Timestamp, Verdict};

use crate::fingerprint::Fingerprint;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::slot::Content;

/// A shard behind its lock, and what it refused last beside it. On cache lines of its own, so that neighbours do not slow
/// each other down; what is read without the lock is not on that of the lock.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Lot {
    shard: Mutex<Shard>,
    refusal: Refusal,
    len: AtomicUsize,
}

const _: () = assert!(size_of::<Lot>() == 256);

/// How long to stay away from a shard that somebody has: on today's processors one to five microseconds.
const PAUSES: u32 = 128;

/// How often to try again before waiting in line.
const WAITS: u32 = 8;

/// A shard whose lock is held.
pub(crate) struct Held<'a> {
    shard: MutexGuard<'a, Shard>,
    lot: &'a Lot,
}

impl Lot {
    /// How many meters there are, without waiting for the lock.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// The shard. A thread that panicked while it held the lock has left a shard that still decides; nobody else has
    /// to panic for it.
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// The shard, as soon as others leave it.
    ///
    /// To hand a meter from core to core takes longer than to decide on it. So who comes second stays away for as long as
    /// the first needs for some dozen decisions: both get more done than if they took turns. Who has waited several times
    /// in vain waits in line.
    #[cold]
    fn wait(&self) -> Held<'_> {
        for _ in 0..WAITS {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(held) = self.try_lock() {
                return held;
            }
        }
        Held { shard: self.shard.lock().unwrap_or_else(PoisonError::into_inner), lot: self }
    }

    /// The shard, unless somebody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        let shard = match self.shard.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { shard, lot: self })
    }

    /// The verdict on a claim that the shard's last refusal shows to be refused. Takes no lock.
    #[inline]
    pub(crate) fn refuses(
        &self,
        print: Fingerprint,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<Verdict> {
        let slot = self.refusal.of(print)?;
        match slot.content() {
            Content::Here(mut state) if mode != Mode::Force => {
                let (admitted, verdict) = claim.meter.claim(&mut state, claim.cost, now, Mode::Peek);
                (!admitted).then_some(verdict)
            }
            _ => None,
        }
    }
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
    fn drop(&mut self) {
        let len = self.shard.len();
        if self.lot.len() != len {
            self.lot.len.store(len, Ordering::Relaxed);
        }
        // Before the lock is let go: who comes after this change is not told what was before.
        if let Some(shown) = self.shard.refusal_news() {
            self.lot.refusal.show(shown.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_one_thread_is_no_panic_of_another() {
        let lot = Lot::default();
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _held = lot.lock();
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
        });
        assert!(panicked.is_err() && lot.shard.is_poisoned());
        assert_eq!(lot.lock().len(), 0);
        assert!(lot.try_lock().is_some());
        let held = lot.lock();
        assert!(lot.try_lock().is_none());
        drop(held);
    }
}
