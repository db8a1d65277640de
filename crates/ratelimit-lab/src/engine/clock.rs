//! The clock of a replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::clock::Timer;
use ratelimit_core::{Clock, Timestamp};

/// A clock that the replay sets to the time of each request. A sleep ends at once, so that a request that a queue delays
/// reaches the service, whose status may refund it. Only one thread uses the clock, so it does not have to wake other
/// tasks or synchronize them, as a manual clock does.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayClock(Arc<Nanos>);

#[derive(Debug, Default)]
struct Nanos {
    now: AtomicU64,
    slept: AtomicU64,
}

impl ReplayClock {
    pub(crate) fn set(&self, now: Timestamp) {
        self.0.now.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// The length of the last sleep since the previous call; zero if there was none.
    pub(crate) fn slept(&self) -> Duration {
        Duration::from_nanos(self.0.slept.swap(0, Ordering::Relaxed))
    }
}

impl Clock for ReplayClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.now.load(Ordering::Relaxed))
    }
}

impl Timer for ReplayClock {
    async fn sleep(&self, duration: Duration) {
        self.0.slept.store(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
