//! Tokio's clock, for tests with paused time.

use std::time::Duration;

use tokio::time::Instant;

use super::{Clock, Timer};
use crate::Timestamp;

/// Tokio's clock, for tests in which tokio's time is paused (`#[tokio::test(start_paused = true)]`).
///
/// Then a wait takes no time: tokio advances its clock to the next timer as soon as no task can run. This clock advances
/// with it, and so do the timers of permits and of the [`layers`](crate::layers). Clones show the same time.
///
/// ```
/// use std::time::Duration;
///
/// use ratelimit_core::clock::{Timer, TokioClock};
/// use ratelimit_core::{Clock, Timestamp};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = TokioClock::starting_at(Timestamp::from_secs(1_000));
/// clock.sleep(Duration::from_secs(3_600)).await; // returns at once
/// assert_eq!(clock.now(), Timestamp::from_secs(4_600));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Timestamp,
    began: Instant,
}

impl TokioClock {
    /// Creates a clock that shows `start` now. Call it in the tokio runtime of the test.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, began: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start + self.began.elapsed()
    }
}

impl Timer for TokioClock {
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
