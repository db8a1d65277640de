//! Calls that have to end in time, or to succeed after a while.

use std::time::Duration;

use ratelimit_core::StoreError;
use ratelimit_core::store::Applied;
use ratelimit_core::store::CLOCK_SLACK;
use tokio::time::{Instant, timeout};

use crate::clock::pause;
use crate::failure::{CaseResult, Failure, ensure};

/// The time limit of a call, whatever happens to the server or to other calls.
const IN_TIME: Duration = Duration::from_secs(10);

/// The time limit of a handle's recovery after the server's.
const RECOVERED: Duration = Duration::from_secs(30);

/// The time without a change after which all dropped calls have ended.
pub(crate) const SETTLED: Duration = Duration::from_millis(300);

/// Awaits a call, and fails the case if it exceeds the time limit.
pub(crate) async fn in_time<T>(what: &str, call: impl Future<Output = CaseResult<T>>) -> CaseResult<T> {
    let late = |_| Failure::new(format!("{what} got no answer and no error within {IN_TIME:?}"));
    timeout(IN_TIME, call).await.map_err(late)?
}

/// Repeats a call that ends in time until it has no error, because the handle must recover by itself. Returns the answer, and
/// how many of the calls with errors may have been applied.
pub(crate) async fn recovers<T, R>(call: impl Fn() -> R) -> CaseResult<(T, u64)>
where
    R: Future<Output = CaseResult<Result<T, StoreError>>>,
{
    let began = Instant::now();
    let mut unknown = 0;
    loop {
        match call().await? {
            Ok(answer) => return Ok((answer, unknown)),
            Err(error) => {
                let since = began.elapsed();
                ensure!(since < RECOVERED, "still an error {since:?} after the server works again: {error}");
                unknown += u64::from(error.applied() == Applied::Unknown);
            }
        }
        pause(Duration::from_millis(20)).await;
    }
}

/// Peeks again and again, and returns what is found once nothing has changed for a while: dropped calls may still run.
pub(crate) async fn settled<T: PartialEq, R>(look: impl Fn() -> R) -> CaseResult<T>
where
    R: Future<Output = CaseResult<T>>,
{
    let (mut seen, mut since) = (look().await?, Instant::now());
    while since.elapsed() < SETTLED {
        pause(Duration::from_millis(50)).await;
        let now = look().await?;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    Ok(seen)
}

/// Whether so much time has passed since an instant that the store may have removed by its server's clock what counted then.
pub(crate) fn is_long_ago(instant: Instant) -> bool {
    instant.elapsed() > CLOCK_SLACK
}
