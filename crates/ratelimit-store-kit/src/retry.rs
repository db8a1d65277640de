//! Repeats what a database has rolled back.

use std::time::Duration;

use ratelimit_core::store::Applied;
use ratelimit_core::{ErrorKind, StoreError};
use tokio::time::{Instant, sleep};

use crate::random::random;

/// The shortest and the longest pause.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(64)];

/// Repeats `call` while it fails because of concurrent calls ([`ErrorKind::Contended`], with nothing applied), until the
/// deadline: a deadlock, a serialization failure, a row that somebody else has inserted first. Pauses [grow](Backoff).
///
/// ```
/// use std::time::Duration;
///
/// use ratelimit_core::StoreError;
/// use ratelimit_store_kit::{deadline_after, retry};
///
/// async fn claim() -> Result<u64, StoreError> {
///     retry(deadline_after(Duration::from_secs(8)), || async { transaction().await }).await
/// }
/// # async fn transaction() -> Result<u64, StoreError> { Ok(7) }
/// ```
///
/// # Errors
/// The last error, once the deadline has passed; any other error at once. Give `call` a time limit of its own.
pub async fn retry<T, F>(deadline: Instant, mut call: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = Backoff::until(deadline);
    loop {
        match call().await {
            Err(error) => backoff.after(error).await?,
            done => return done,
        }
    }
}

/// Whether concurrent calls were the cause, and nothing was applied.
fn is_repeatable(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Contended && error.applied() == Applied::No
}

/// The pauses between attempts: from one to 64 milliseconds, each about twice as long as the one before, and of random length,
/// so that two callers do not meet again. It ends at the deadline.
///
/// An iterator, for a blocking thread; [`retry`] sleeps by itself.
///
/// ```
/// use std::time::Duration;
///
/// use ratelimit_core::{ErrorKind, StoreError};
/// use ratelimit_store_kit::{Backoff, deadline_after};
///
/// /// Repeats a transaction on a blocking thread.
/// fn claim() -> Result<u64, StoreError> {
///     let mut backoff = Backoff::until(deadline_after(Duration::from_secs(8)));
///     loop {
///         match transaction() {
///             Err(error) if error.kind() == ErrorKind::Contended => match backoff.next() {
///                 Some(pause) => std::thread::sleep(pause),
///                 None => return Err(error),
///             },
///             result => return result,
///         }
///     }
/// }
/// # fn transaction() -> Result<u64, StoreError> { Ok(7) }
/// # assert_eq!(claim().ok(), Some(7));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    deadline: Instant,
    longest: Duration,
}

impl Backoff {
    /// Pauses until `deadline`.
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, longest: PAUSES[0] }
    }

    /// Sleeps before the next attempt after this error; returns the error if there shall be none.
    pub(crate) async fn after(&mut self, error: StoreError) -> Result<(), StoreError> {
        match self.next() {
            Some(pause) if is_repeatable(&error) => sleep(pause).await,
            _ => return Err(error),
        }
        Ok(())
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let half = self.longest / 2;
        let pause =
            half + Duration::from_nanos(random() % u64::try_from(half.as_nanos()).unwrap_or(1).max(1));
        self.longest = (self.longest * 2).min(PAUSES[1]);
        Some(pause.min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn contention_is_repeated_until_the_deadline_and_nothing_else_is() {
        let start = Instant::now();
        let contended = || StoreError::new("test", ErrorKind::Contended, "a deadlock");
        let (mut calls, deadline) = (0, deadline());
        let outcome = retry(deadline, || {
            calls += 1;
            async { Err::<(), _>(contended()) }
        })
        .await;
        assert_eq!(outcome.expect_err("never succeeds").kind(), ErrorKind::Contended);
        assert!(start.elapsed() >= Duration::from_secs(1) && start.elapsed() < Duration::from_secs(2));
        assert!((16..200).contains(&calls), "{calls}");
        for error in [contended().maybe_applied(), StoreError::new("test", ErrorKind::Server, "no")] {
            let mut calls = 0;
            let outcome = retry(deadline + Duration::from_secs(9), || {
                calls += 1;
                let error = error.clone();
                async { Err::<(), _>(error) }
            });
            assert!(outcome.await.is_err());
            assert_eq!(calls, 1);
        }
    }

    fn deadline() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_success() {
        let mut calls = 0;
        let outcome = retry(deadline(), || {
            calls += 1;
            let failed = calls < 4;
            async move { if failed { Err(StoreError::new("test", ErrorKind::Contended, "busy")) } else { Ok(7) } }
        });
        assert_eq!(outcome.await.expect("the fourth succeeds"), 7);
    }
}
