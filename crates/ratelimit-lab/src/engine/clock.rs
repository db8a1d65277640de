//! The clock of a replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::{Clock, Timer, Timestamp};

/// A clock that is set to the time of each request. Only one thread uses it, so it needs none of what a manual clock does for
/// others. Who sleeps until its turn has it at once, so that a request in a queue comes to its end, whose status may refund it.
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

    /// How long the last sleep was, if there was one since this was asked.
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
