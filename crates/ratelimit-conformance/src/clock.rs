//! The time of the cases.

use std::time::Duration;

use ratelimit_core::Timestamp;

/// The instant at which the manual clocks of most cases start: a full hour in 2004. The clocks of all servers are far ahead
/// of it, whenever the suite runs, so a store that decides or expires by its server's clock is caught.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_074_240_000);

/// The shortest time.
pub(crate) const TICK: Duration = Duration::from_nanos(1);

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A period of three thousand days, so long that it does not matter by whose clock a case runs.
pub(crate) const DAYS: Duration = Duration::from_secs(3_000 * 86_400);

/// Waits in real time.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
