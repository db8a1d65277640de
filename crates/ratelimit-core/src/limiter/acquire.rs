//! Waiting until a request is admitted.

use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::task::Poll;
use std::time::Duration;

use super::{AcquireError, RateLimiter, Request};
use crate::{CounterStore, Decision, Mode, Timer, Timestamp};

/// How to wait; see [`RateLimiter::acquire_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acquire {
    /// Give up rather than be admitted, or have one's turn, later than this. `None` waits as long as it takes.
    pub timeout: Option<Duration>,
    /// After a refusal wait up to this much longer than told, at random, so that many waiters do not come back at the
    /// same instant.
    pub jitter: Duration,
}

/// The least that is waited before asking a third time, or after a refusal that says to come back at once.
const LEAST: Duration = Duration::from_millis(1);

/// The most that a refusal which says to come back at once is answered with.
const MOST: Duration = Duration::from_secs(1);

impl<S: CounterStore, C: Timer> RateLimiter<S, C> {
    /// Waits until the request is admitted, however long it takes.
    ///
    /// Comes back only with a permit: it checks again after each wait, and who is overtaken waits again. Under a leaky
    /// queue the store gives each waiter its turn at once, so that many processes together release evenly, in order.
    ///
    /// It waits as long as the store tells, on this limiter's clock. After a second refusal it waits at least a millisecond. A
    /// refusal that says to come back at once (some stores do so under contention) is asked about again after one millisecond,
    /// then two, four and so on up to a second. So a store that is wrong about its `retry_after` costs you some calls, but never
    /// a busy loop.
    ///
    /// # Errors
    /// If the request can never be admitted, or if the store did not answer.
    ///
    /// # Dropping
    /// Dropping the future ends the waiting. A turn in a leaky queue that was already given is then used up.
    pub async fn acquire<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, AcquireError> {
        self.acquire_with(request, Acquire::default()).await
    }

    /// As [`acquire`](Self::acquire), with a deadline and jitter.
    ///
    /// A wait that would end after the deadline is not begun: the error comes at once.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and if it would not be admitted in time.
    pub async fn acquire_with<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
        options: Acquire,
    ) -> Result<Decision<'l>, AcquireError> {
        let request = request.into();
        let deadline = options.timeout.map(|timeout| self.clock.now() + timeout);
        let late = |now: Timestamp, wait| deadline.is_some_and(|deadline| now + wait > deadline);
        let mut patience = Patience::default();
        loop {
            let decision = self.decide(&request, Mode::Charge).await?;
            let now = self.clock.now();
            if decision.allowed() {
                let delay = decision.delay();
                if late(now, delay) {
                    self.refund(&decision).await?;
                    return Err(AcquireError::Deadline(decision.into_owned()));
                }
                if !delay.is_zero() {
                    self.clock.sleep(delay).await;
                }
                return Ok(decision);
            }
            let Some(told) = decision.retry_after() else {
                return Err(AcquireError::Never(decision.into_owned()));
            };
            if late(now, told) || deadline == Some(now) {
                return Err(AcquireError::Deadline(decision.into_owned()));
            }
            let longest = deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
            let wait = patience.wait(told) + random_up_to(options.jitter);
            self.clock.sleep(wait.min(longest)).await;
            // Whatever the clock makes of the wait, others have their turn.
            step_aside().await;
        }
    }
}

/// How often a request was refused, and how often in a row it was told to come back at once.
#[derive(Default)]
struct Patience {
    refused: bool,
    at_once: u32,
}

impl Patience {
    /// How long to wait after a refusal that tells so much.
    fn wait(&mut self, told: Duration) -> Duration {
        let again = std::mem::replace(&mut self.refused, true);
        if told.is_zero() {
            let wait = LEAST.saturating_mul(1 << self.at_once.min(10)).min(MOST);
            self.at_once = self.at_once.saturating_add(1);
            return wait;
        }
        self.at_once = 0;
        if again { told.max(LEAST) } else { told }
    }
}

/// Completes when it is polled a second time, which is asked for at once.
async fn step_aside() {
    let mut done = false;
    poll_fn(|context| {
        if std::mem::replace(&mut done, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A random part of `most`. Random enough to spread waiters, and needs no generator of its own.
fn random_up_to(most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    // Each RandomState is keyed differently.
    let random = RandomState::new().hash_one(());
    Duration::from_nanos(nanos.checked_add(1).map_or(random, |bound| random % bound))
}
