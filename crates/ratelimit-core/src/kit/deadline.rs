//! When a call must have ended.

use std::time::Duration;

use tokio::time::Instant;

/// Longer than any program waits, and short enough for every platform's clock.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// The deadline of a call that starts now and may take `timeout`. A timeout of more than 30 years counts as 30 years.
///
/// ```
/// use ratelimit_core::kit::deadline_after;
/// use std::time::Duration;
///
/// assert!(deadline_after(Duration::MAX) > deadline_after(Duration::from_secs(1)));
/// ```
pub fn deadline_after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(LONGEST)
}

/// How long a call with this deadline may wait for its turn: for half of the time that is left. If more calls arrive than can
/// be answered, those whose turn comes have waited for as long as they may; so they have the other half for what they do then.
///
/// ```
/// use ratelimit_core::kit::{deadline_after, halfway_to};
/// use std::time::Duration;
///
/// let deadline = deadline_after(Duration::from_secs(60));
/// let left = deadline - halfway_to(deadline);
/// assert!(left > Duration::from_secs(25) && left <= Duration::from_secs(30));
/// ```
pub fn halfway_to(deadline: Instant) -> Instant {
    deadline - deadline.saturating_duration_since(Instant::now()) / 2
}
