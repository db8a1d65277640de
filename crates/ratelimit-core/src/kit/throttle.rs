//! At most one event of a kind per second, so that a store that fails does not flood the log.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Clock, SystemClock};

static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);
const PERIOD_NANOS: u64 = 1_000_000_000;

/// Lets one event per second pass, and counts the others. Make it a `static` for each kind of event.
///
/// ```
/// use ratelimit_core::kit::Throttle;
///
/// static THROTTLE: Throttle = Throttle::new();
/// for _ in 0..1_000 {
///     if let Some(left_out) = THROTTLE.pass() {
///         println!("the store does not answer ({left_out} such events left out)");
///     }
/// }
/// ```
#[derive(Debug, Default)]
pub struct Throttle {
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Throttle {
    /// Creates a throttle, which lets the first event pass.
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Returns how many events were omitted since the last one, if another one is due.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(CLOCK.now().as_nanos())
    }

    fn pass_at(&self, now: u64) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let after = now.saturating_add(PERIOD_NANOS);
        let is_time = now >= next
            && self.next.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_time {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_a_second_passes_and_the_rest_is_counted() {
        let throttle = Throttle::new();
        assert_eq!(throttle.pass_at(5), Some(0));
        assert_eq!(throttle.pass_at(6), None);
        assert_eq!(throttle.pass_at(PERIOD_NANOS + 4), None);
        assert_eq!(throttle.pass_at(PERIOD_NANOS + 5), Some(2));
        assert_eq!(throttle.pass_at(PERIOD_NANOS + 6), None);
    }
}
