//! A shard behind its lock, and how many meters it holds beside the lock.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::shard::Shard;

/// A shard behind its lock. On cache lines of its own, so that neighbours do not slow each other down.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Lot {
    shard: Mutex<Shard>,
    len: AtomicUsize,
}

/// A shard whose lock is held.
pub(crate) struct Held<'a> {
    shard: MutexGuard<'a, Shard>,
    len: &'a AtomicUsize,
}

impl Lot {
    /// How many meters there are, without waiting for the lock.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// The shard. A thread that panicked while it held the lock has left a shard that still decides; nobody else has
    /// to panic for it.
    pub(crate) fn lock(&self) -> Held<'_> {
        Held { shard: self.shard.lock().unwrap_or_else(PoisonError::into_inner), len: &self.len }
    }

    /// The shard, unless somebody has it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        let shard = match self.shard.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { shard, len: &self.len })
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
        self.len.store(self.shard.len(), Ordering::Relaxed);
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
