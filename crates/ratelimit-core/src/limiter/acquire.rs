//! Waiting until a request is admitted.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use super::{AcquireError, RateLimiter, Request};
use crate::{CounterStore, Decision, Timer, Timestamp};

/// How to wait; see [`RateLimiter::acquire_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acquire {
    /// Give up rather than be admitted, or have one's turn, later than this. `None` waits as long as it takes.
    pub timeout: Option<Duration>,
    /// After a refusal wait up to this much longer than told, at random, so that many waiters do not come back at the
    /// same instant.
    pub jitter: Duration,
}

impl<S: CounterStore, C: Timer> RateLimiter<S, C> {
    /// Waits until the request is admitted, however long it takes.
    ///
    /// Comes back only with a permit: it checks again after each wait, and who is overtaken waits again. Under a leaky
    /// queue the store gives each waiter its turn at once, so that many processes together release evenly, in order.
    ///
    /// # Errors
    /// If the request can never be admitted, or if the store did not answer.
    ///
    /// # Dropping
    /// Dropping the future ends the waiting. A turn in a leaky queue that was already given is then used up.
    pub async fn acquire<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, AcquireError> {
        self.acquire_with(request, Acquire::default()).await
    }

    /// As [`acquire`](Self::acquire), with a deadline and jitter.
    ///
    /// A wait that would end after the deadline is not begun: the error comes at once.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and if it would not be admitted in time.
    pub async fn acquire_with<'a>(
        &self,
        request: impl Into<Request<'a>>,
        options: Acquire,
    ) -> Result<Decision, AcquireError> {
        let request = request.into();
        let deadline = options.timeout.map(|timeout| self.clock.now() + timeout);
        let late = |now: Timestamp, wait| deadline.is_some_and(|deadline| now + wait > deadline);
        loop {
            let decision = self.check(&request).await?;
            let now = self.clock.now();
            if decision.allowed() {
                let delay = decision.delay();
                if late(now, delay) {
                    self.refund(&request, &decision).await?;
                    return Err(AcquireError::Deadline(decision));
                }
                if !delay.is_zero() {
                    self.clock.sleep(delay).await;
                }
                return Ok(decision);
            }
            let Some(wait) = decision.retry_after() else {
                return Err(AcquireError::Never(decision));
            };
            if late(now, wait) {
                return Err(AcquireError::Deadline(decision));
            }
            let longest = deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
            self.clock.sleep((wait + random_up_to(options.jitter)).min(longest)).await;
        }
    }
}

/// A random part of `most`. Random enough to spread waiters, and needs no generator of its own.
fn random_up_to(most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    // Each RandomState is keyed differently.
    let random = RandomState::new().hash_one(());
    Duration::from_nanos(nanos.checked_add(1).map_or(random, |bound| random % bound))
}
