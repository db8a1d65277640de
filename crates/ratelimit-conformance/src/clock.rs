//! The time of the cases.

use std::time::Duration;

use ratelimit_core::Timestamp;

/// The instant at which the manual clocks of most cases start: a full hour in 2004. The clocks of all servers are far ahead
/// of it, whenever the suite runs, so a store that decides or expires by its server's clock is caught.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_074_240_000);

/// Waits in real time.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
