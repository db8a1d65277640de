//! The lock of a shard.

use std::time::Duration;

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// A lock that is held for a few dozen nanoseconds.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SpinLock<T>(SpinMutex<T>);

/// A value whose lock is held.
pub type SpinGuard<'a, T> = SpinMutexGuard<'a, T>;

/// How many spin-loop hints to wait before the next attempt to lock: one to five microseconds on today's processors.
const PAUSES: u32 = 128;

/// How many times to retry before sleeping.
const WAITS: u32 = 8;

/// How long to sleep before a retry; a thread that holds the lock for longer has been preempted.
const SLEEP: Duration = Duration::from_micros(50);

impl<T> SpinLock<T> {
    /// Creates an unlocked value.
    pub const fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Locks the value. It is not poisoned if a thread panicked while it held the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Locks the value if no other thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Locks the value as soon as other threads release it.
    ///
    /// Moving a meter from one core's cache to another's takes longer than deciding on it. So a second thread backs off
    /// for as long as the first needs for some dozen decisions: both get more done than if they alternated. After several
    /// failed attempts it sleeps, so that the thread that holds the lock gets the processor even if it has a lower
    /// priority.
    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        for _ in 0..WAITS {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(held) = self.try_lock() {
                return held;
            }
        }
        loop {
            std::thread::sleep(SLEEP);
            if let Some(held) = self.try_lock() {
                return held;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_panic_does_not_poison_the_lock() {
        let lock = SpinLock::new(7);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _held = lock.lock();
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
        });
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 7);
        assert!(lock.try_lock().is_some());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
    }

    #[test]
    fn waiters_acquire_a_lock_that_was_held_for_long() {
        let lock = SpinLock::new(());
        let held = lock.lock();
        let (waits, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    waits.fetch_add(1, Ordering::SeqCst);
                    drop(lock.lock());
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
