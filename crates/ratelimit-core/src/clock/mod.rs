//! Clocks: the machine's, one that a test sets, and tokio's.
#![allow(clippy::disallowed_methods)] // the one place that reads the machine's clocks

mod counter;
#[cfg(feature = "tokio")]
mod tokio_clock;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::counter::{COUNTER, Counter};
#[cfg(feature = "tokio")]
pub use self::tokio_clock::TokioClock;
use crate::Timestamp;

/// A clock that a limiter reads.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// A clock that can sleep, as [`RateLimiter::acquire`](crate::RateLimiter::acquire) requires.
pub trait Timer: Clock {
    /// Completes when at least `duration` has passed on this clock.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// The machine's clock: the wall clock as it was when this value was created, advanced by the monotonic clock.
///
/// So it never goes back, and does not jump when the machine's time is changed. Processes that share a store should
/// synchronise their wall clocks (NTP), or let the store use its own clock if it offers that.
///
/// It reads the monotonic clock once a second, and the processor's counter in between, which takes a third of the time.
/// It may be some microseconds behind because of that.
///
/// While a machine is suspended, its monotonic clock may stop. If the processor's counter goes on, and the machine's time agrees
/// that so much has passed, this clock includes the suspension. Otherwise it lags behind by as much afterwards.
///
/// It is `Copy`; copies show the same time.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    /// The time when the counter was created, according to the wall clock as it was when this value was created.
    origin: u64,
    counter: &'static Counter,
}

impl SystemClock {
    /// Creates a clock that starts at the wall clock's current time, or at the epoch if the wall clock is before 1970.
    pub fn new() -> Self {
        // Creating the counter at its first use takes time. So use it before the wall clock is read.
        let counter = &*COUNTER;
        // Of three readings the one that took the shortest time: the thread may be preempted in the middle of one.
        let readings = [(); 3].map(|()| {
            let before = counter.nanos();
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let width = counter.nanos().saturating_sub(before);
            (width, (Timestamp::EPOCH + wall).as_nanos().saturating_sub(before + width / 2))
        });
        let [(_, first), ..] = readings;
        let origin = readings.into_iter().min().map_or(first, |(_, origin)| origin);
        Self { origin, counter }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        // Both are below 2^63.
        Timestamp::from_nanos(self.origin.wrapping_add(self.counter.nanos()))
    }
}

#[cfg(feature = "tokio")]
impl Timer for SystemClock {
    /// Sleeps on tokio's timer, which rounds up to whole milliseconds.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or in one without its time driver.
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A clock that stands still until you set it: for tests that do not have to wait.
///
/// Clones share the time. A [`sleep`](Timer::sleep) completes when the clock has reached the end of the sleep.
///
/// ```
/// use ratelimit_core::{Clock, ManualClock, Timestamp};
/// use std::time::Duration;
///
/// let clock = ManualClock::at(Timestamp::from_secs(100));
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now(), Timestamp::from_secs(105));
/// clock.set(Timestamp::from_secs(50)); // a step back is allowed: machines do that
/// assert_eq!(clock.now(), Timestamp::from_secs(50));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Manual>);

#[derive(Default)]
struct Manual {
    nanos: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
}

impl ManualClock {
    /// Creates a clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Advances the clock by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now() + duration);
    }

    /// Sets the clock to `now`, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.0.nanos.store(now.as_nanos(), Ordering::SeqCst);
        let sleepers = std::mem::take(&mut *self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
        sleepers.into_iter().for_each(Waker::wake);
    }

    /// The number of times that a sleep was polled and has to wait, since the clock was last set: not zero once a task
    /// sleeps, so that a test can advance the clock.
    ///
    /// A sleep that was polled twice counts twice, and one that was dropped still counts.
    pub fn sleepers(&self) -> usize {
        self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.nanos.load(Ordering::SeqCst))
    }
}

impl Timer for ManualClock {
    async fn sleep(&self, duration: Duration) {
        let until = self.now() + duration;
        std::future::poll_fn(|context| {
            // The lock is taken before the time is read. `set` stores the time first and takes the lock after, so
            // either this call sees the new time or `set` sees this waker.
            let mut sleepers = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
            if self.now() >= until {
                return Poll::Ready(());
            }
            sleepers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

impl<C: Timer> Timer for Arc<C> {
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        (**self).sleep(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_the_wall_clock_and_never_goes_back() {
        let clock = SystemClock::new();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(clock.now().since(Timestamp::EPOCH).abs_diff(wall) < Duration::from_secs(60));
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[tokio::test]
    async fn a_shared_clock_is_a_clock_and_a_timer() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(5)));
        clock.sleep(Duration::ZERO).await;
        let clock: Arc<dyn Clock> = clock;
        fn now(clock: &impl Clock) -> Timestamp {
            clock.now()
        }
        assert_eq!(now(&clock), Timestamp::from_secs(5));
    }

    #[tokio::test]
    async fn sleepers_wake_exactly_when_the_clock_reaches_their_end() {
        let clock = ManualClock::at(Timestamp::from_secs(1));
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(10)).await }
        });
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_nanos(9_999_999_999));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_nanos(1));
        sleeper.await.unwrap();
    }
}
