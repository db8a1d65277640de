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
