//! Waiting until a request is admitted.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::{AcquireError, RateLimiter, Request};
use crate::random::random_up_to;
use crate::receipt::ASK_AGAIN;
use crate::{Algorithm, CounterStore, Decision, MeterId, Mode, StoreError, Timer, Timestamp};

/// How to wait; see [`RateLimiter::acquire_with`].
///
/// ```
/// # use std::time::Duration;
/// # use ratelimit_core::Acquire;
/// let options = Acquire::default().timeout(Duration::from_secs(30)).jitter(Duration::from_millis(10));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acquire {
    /// The deadline, from the call on: give up if the request would be admitted, or get its turn, later. With zero it is
    /// admitted now or not at all, however long the store takes to answer. `None` waits as long as it takes.
    pub timeout: Option<Duration>,
    /// The maximum of a random time that is added to each wait after a refusal, so that many waiters do not retry at the
    /// same instant.
    pub jitter: Duration,
}

impl Acquire {
    crate::kit::setters! {
        timeout: impl Into<Option<Duration>>,
        jitter: Duration,
    }
}

/// The minimum wait before the third and any later attempt, and after a refusal with a `retry_after` of zero.
const LEAST: Duration = Duration::from_millis(1);

/// The maximum wait after a refusal with a `retry_after` of zero.
const MOST: Duration = Duration::from_secs(1);

impl<S: CounterStore, C: Timer> RateLimiter<S, C> {
    /// Waits until the request is admitted, however long it takes.
    ///
    /// After a refusal, it waits for the decision's [`retry_after`](Decision::retry_after) on this limiter's clock, and
    /// checks again; if another caller was faster, it waits again. A leaky queue assigns each waiter its turn at the
    /// first check, so the waiters of many processes together proceed evenly, in order.
    ///
    /// After a refusal by a [`Fallback`](crate::layers::Fallback), it waits at most a second, because the first store may answer
    /// again at any moment.
    ///
    /// After the second and any later refusal, it waits at least a millisecond. If a refusal has a `retry_after` of zero
    /// (some stores do so under contention), it retries after one millisecond, then two, four and so on up to a second.
    /// So a store with a wrong `retry_after` costs you some calls, but never a busy loop.
    ///
    /// Under a concurrency limit, the callers of one limiter and its clones are admitted in order of arrival for each
    /// key. The first of them tries again when this limiter releases units of the key, and also after one millisecond,
    /// two, four and so on up to a second, because another process may release units. A caller that is refused by another
    /// limit loses its place, so that it does not hold up the others. A [`check`](Self::check) does not wait behind these
    /// callers, and there is no order between processes.
    ///
    /// Acquire all units that you need at once. If you hold units and acquire more of the same limit and key, you wait
    /// behind callers that may be waiting for yours.
    ///
    /// # Errors
    /// If the request can never be admitted, if the store did not answer, or if the request cannot be checked; see
    /// [`AcquireError`].
    ///
    /// # Panics
    /// If it has to wait and the clock's [`sleep`](Timer::sleep) panics: that of [`SystemClock`](crate::SystemClock) does
    /// so outside of a tokio runtime.
    ///
    /// # Dropping
    /// Dropping the future stops the wait. If the future was waiting for a turn in a leaky queue, the turn is used up, and
    /// units that the request has taken under a concurrency limit are held until their lease ends. To give up in time, set a
    /// [deadline](Acquire::timeout): a turn that comes later is not taken, unless the store is slow to answer.
    pub async fn acquire<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, AcquireError> {
        self.acquire_with(request, Acquire::default()).await
    }

    /// Like [`acquire`](Self::acquire), with a deadline and jitter.
    ///
    /// If the wait would end after the deadline, it returns [`AcquireError::Deadline`] immediately. A caller that is still
    /// behind others at the deadline gets the same error, with the decision of a peek. With a deadline, the decision shows
    /// a queue as short as the deadline allows: its [`limit`](Decision::limit) may be less than the queue's burst.
    ///
    /// # Errors
    /// Like [`acquire`](Self::acquire), and if the request would not be admitted in time.
    ///
    /// # Panics
    /// Like [`acquire`](Self::acquire).
    pub async fn acquire_with<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
        options: Acquire,
    ) -> Result<Decision<'l>, AcquireError> {
        let request = request.into();
        let begun = self.clock.now();
        let deadline = options.timeout.map(|timeout| begun + timeout);
        let late = |now: Timestamp, wait| deadline.is_some_and(|deadline| now + wait > deadline);
        let mut backoff = Backoff::default();
        let mut place = self.waiters.join_others(request.held_meters(&self.namespace, &self.limits));
        loop {
            if let Some(place) = &place
                && !self.before(deadline, place.first()).await
            {
                let decision = self.decide(&request, self.clock.now(), Mode::Peek).await?;
                return Err(AcquireError::Deadline(decision.into_owned()));
            }
            let longest = deadline.map_or(Duration::MAX, |deadline| deadline.since(self.clock.now()));
            let in_time = deadline.map(|_| request.clone().within(longest, &self.limits));
            let decision =
                self.decide(in_time.as_ref().unwrap_or(&request), self.clock.now(), Mode::Charge).await?;
            // With a timeout of zero, the answer counts as in time however long the store took.
            let now = if deadline == Some(begun) { begun } else { self.clock.now() };
            if decision.allowed() {
                drop(place);
                // A part of it may have passed on the way.
                let delay = decision.delay().saturating_sub(self.passed_since(&decision));
                if late(now, delay) {
                    // If the refund fails, the turn may still be charged.
                    self.refund(&decision).await.map_err(StoreError::maybe_applied)?;
                    return Err(AcquireError::Deadline(decision.into_owned()));
                }
                if !delay.is_zero() {
                    self.wait_for_turn(&decision, now + delay).await;
                }
                return Ok(decision);
            }
            let held = self.refusing_held_meter(&request, &decision);
            let reported = match (decision.retry_after(), &held) {
                (None, _) => return Err(AcquireError::Never(decision.into_owned())),
                // The holder may release it at any moment.
                (Some(_), Some(_)) => Duration::ZERO,
                (Some(reported), None) => reported,
            };
            let (reported, turn) = match decision.degraded() {
                true => (reported.min(ASK_AGAIN), Duration::ZERO),
                false => (reported, decision.turn()),
            };
            if late(now, reported.max(turn)) || deadline == Some(now) {
                return Err(AcquireError::Deadline(decision.into_owned()));
            }
            let longest = deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
            let wait = backoff.wait(reported) + random_up_to(options.jitter);
            place = held.map(|meter| {
                let same_place = place.take().filter(|place| place.is_of(&meter));
                same_place.unwrap_or_else(|| self.waiters.join(meter))
            });
            let sleep = self.clock.sleep(wait.min(longest));
            match &place {
                Some(place) => {
                    race(place.woken(), sleep).await;
                }
                None => sleep.await,
            }
            // The clock's wait may have completed without yielding to other tasks.
            yield_now().await;
        }
    }

    /// The name of the meter that refused, if its limit is a concurrency limit.
    fn refusing_held_meter(&self, request: &Request<'_, '_>, decision: &Decision<'_>) -> Option<Vec<u8>> {
        let limit = decision.decided_by();
        if limit.rule().algorithm() != Algorithm::Concurrency {
            return None;
        }
        let key = request.key(limit.key_index())?;
        Some(MeterId { namespace: &self.namespace, scope: limit.rule().scope(), key }.to_bytes())
    }

    /// Sleeps until this instant, and renews the leases that the decision holds meanwhile.
    async fn wait_for_turn(&self, decision: &Decision<'_>, turn: Timestamp) {
        let third = decision.renewal_interval();
        let mut pause = third.saturating_sub(self.passed_since(decision));
        loop {
            let left = turn.since(self.clock.now());
            self.clock.sleep(left.min(pause)).await;
            if left <= pause {
                return;
            }
            // If it fails, the next one may be in time. A lease that has ended shows when it is held.
            let _ = self.renew(decision).await;
            pause = third;
        }
    }

    /// Waits for `future` until the deadline. Returns whether it completed.
    async fn before(&self, deadline: Option<Timestamp>, future: impl Future<Output = ()>) -> bool {
        let Some(deadline) = deadline else {
            future.await;
            return true;
        };
        race(future, self.clock.sleep(deadline.since(self.clock.now()))).await
    }
}

/// Completes when one of the two futures does. Returns whether it was `first`.
async fn race(first: impl Future<Output = ()>, second: impl Future<Output = ()>) -> bool {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|context| match first.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => second.as_mut().poll(context).map(|()| false),
    })
    .await
}

/// Whether a request was refused before, and how many consecutive refusals had a `retry_after` of zero.
#[derive(Default)]
struct Backoff {
    refused: bool,
    zeros: u32,
}

impl Backoff {
    /// Returns how long to wait after a refusal with this `retry_after`.
    fn wait(&mut self, reported: Duration) -> Duration {
        let again = std::mem::replace(&mut self.refused, true);
        if reported.is_zero() {
            let wait = LEAST.saturating_mul(1 << self.zeros.min(10)).min(MOST);
            self.zeros = self.zeros.saturating_add(1);
            return wait;
        }
        self.zeros = 0;
        if again { reported.max(LEAST) } else { reported }
    }
}

/// Yields once to other tasks: wakes itself at the first poll, and completes at the second.
async fn yield_now() {
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
