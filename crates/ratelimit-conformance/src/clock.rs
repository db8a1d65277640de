//! The time of the cases.

use std::time::Duration;

use ratelimit_core::Timestamp;

/// The instant at which the manual clocks of most cases start: a full hour in 2027.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Waits in real time.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
