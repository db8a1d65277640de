//! Natural batching: claims that arrive during a round trip are sent together in the next one.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

use super::BatchConfig;
use crate::kit::{OwnedClaims, OwnedName, RecentPeak, deadline_after};
use crate::{Answer, Claims, CounterStore, ErrorKind, Promises, Refund, StoreError, Timestamp};

/// A layer that sends concurrent claims together under load. It adds no latency at low load, and reduces the number of
/// calls to a busy store.
///
/// As long as recently no more than [`unbatched`](BatchConfig::unbatched) claims were concurrent, each is sent immediately
/// and by itself, as without this layer. With more, a claim waits for others that are sent at the same moment, and claims
/// that arrive while [`concurrent_batches`](BatchConfig::concurrent_batches) round trips are in progress wait until one of
/// them ends.
///
/// A batch is sent with one [`CounterStore::claim_many`], in the order of arrival. Each check is decided by itself,
/// exactly as if the checks had been sent one after another.
///
/// If a caller drops its future before its claim was sent, nothing is charged. If it drops it later, the others in the
/// batch still get their answers. Refunds, resets and calls to `claim_many` are passed to the store directly.
///
/// Requires a tokio runtime with its time driver.
///
/// ```
/// # use ratelimit_core::layers::Batched;
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # fn example<S: CounterStore + 'static>(store: S) -> Result<(), ratelimit_core::ParseLimitError> {
/// let limiter = RateLimiter::new(Batched::new(store), "100/min".parse::<Limit>()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Batched<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    inner: S,
    config: BatchConfig,
    queue: Mutex<Queue>,
}

/// Round trips in progress, and claims that wait.
#[derive(Default)]
struct Queue {
    /// Round trips in progress, including one that is about to begin.
    in_flight: usize,
    /// A round trip is about to begin with the waiting claims.
    gathering: bool,
    callers: RecentPeak,
    waiting: VecDeque<Waiting>,
    /// The number of the next claim to arrive.
    next: u64,
}

/// A claim in progress. Dropping this removes it from the number of concurrent callers, and from the queue.
struct Caller<'a, S> {
    shared: &'a Shared<S>,
    /// The number of its claim while it waits.
    waiting: Option<u64>,
}

impl<S> Drop for Caller<'_, S> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.callers.leave();
        if let Some(number) = self.waiting {
            queue.remove(number);
        }
    }
}

impl Queue {
    /// Removes a waiting claim, if it is still there.
    fn remove(&mut self, number: u64) -> bool {
        let place = self.waiting.binary_search_by_key(&number, |waiting| waiting.number);
        place.is_ok_and(|place| self.waiting.remove(place).is_some())
    }
}

struct Waiting {
    number: u64,
    claims: Box<OwnedClaims<OwnedName>>,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
}

impl<S: CounterStore + 'static> Batched<S> {
    /// Wraps `inner` with the default configuration.
    pub fn new(inner: S) -> Self {
        Self::with_config(inner, BatchConfig::default())
    }

    /// Wraps `inner` with this configuration.
    pub fn with_config(inner: S, config: BatchConfig) -> Self {
        let config = BatchConfig {
            concurrent_batches: config.concurrent_batches.max(1),
            batch_size: config.batch_size.max(1),
            max_waiting: config.max_waiting.max(1),
            ..config
        };
        Self { shared: Arc::new(Shared { inner, config, queue: Mutex::default() }) }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    /// Grants the claims a round trip of their own if there are few callers and nobody waits; otherwise a place in the
    /// queue.
    fn enqueue(&self, claims: &Claims<'_>) -> Result<Turn<S>, StoreError> {
        let config = &self.shared.config;
        let mut queue = self.shared.queue();
        queue.callers.enter();
        let few = queue.callers.get() <= config.unbatched;
        if queue.waiting.is_empty() && few {
            queue.in_flight += 1;
            return Ok(Turn::Now(RoundTrip { shared: self.shared.clone(), begun: true }));
        }
        if queue.waiting.len() >= config.max_waiting {
            let message = "too many checks are waiting already";
            return Err(StoreError::new("batched", ErrorKind::Contended, message));
        }
        let (answer, receiver) = oneshot::channel();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(Waiting {
            number,
            claims: Box::new(OwnedClaims::new(claims, OwnedName::new)),
            answer,
        });
        let round_trip = self.shared.next_round_trip(&mut queue);
        drop(queue);
        if let Some(round_trip) = round_trip {
            tokio::spawn(send_soon(round_trip));
        }
        Ok(Turn::Waiting(number, receiver))
    }
}

enum Turn<S: CounterStore + 'static> {
    Now(RoundTrip<S>),
    Waiting(u64, oneshot::Receiver<Result<Answer, StoreError>>),
}

/// One of the concurrent round trips. When it ends, for whatever reason, the waiting claims are sent next.
struct RoundTrip<S: CounterStore + 'static> {
    shared: Arc<Shared<S>>,
    begun: bool,
}

impl<S: CounterStore + 'static> Drop for RoundTrip<S> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.in_flight -= 1;
        if !self.begun {
            queue.gathering = false;
        }
        match Handle::try_current() {
            Ok(runtime) if self.begun => {
                let round_trip = self.shared.next_round_trip(&mut queue);
                drop(queue);
                if let Some(round_trip) = round_trip {
                    runtime.spawn(send(round_trip));
                }
            }
            // The runtime has ended. Waiting claims are sent when another round trip ends; if there is none, their
            // callers get an error, because their senders are dropped.
            _ if queue.in_flight == 0 => queue.waiting.clear(),
            _ => {}
        }
    }
}

/// Yields once before it sends: callers that got their answers together often claim again at the same moment, so the first
/// claim soon has company.
async fn send_soon<S: CounterStore + 'static>(round_trip: RoundTrip<S>) {
    tokio::task::yield_now().await;
    send(round_trip).await;
}

/// Makes one round trip with the claims that have waited longest. When it ends, the next one begins.
async fn send<S: CounterStore + 'static>(mut round_trip: RoundTrip<S>) {
    let (batch, another) = round_trip.begin();
    if let Some(another) = another {
        tokio::spawn(send_another(another));
    }
    if batch.is_empty() {
        return;
    }
    let claims: Vec<_> = batch.iter().flat_map(|waiting| waiting.claims.borrowed()).collect();
    let mut left = claims.as_slice();
    let mut slices = Vec::with_capacity(batch.len());
    for Waiting { claims, .. } in &batch {
        let (slice, others) = left.split_at(claims.claims.len());
        slices.push(Claims::known(claims.now, claims.mode, slice));
        left = others;
    }
    let answers = round_trip.shared.inner.claim_many(&slices).await;
    drop(slices);
    drop(claims);
    for (waiting, answer) in batch.into_iter().zip(answers) {
        // If the receiver is gone, the caller has dropped its future.
        let _ = waiting.answer.send(answer);
    }
}

/// [`send`] as a type that can be named, because it starts another round trip like itself.
fn send_another<S: CounterStore + 'static>(
    round_trip: RoundTrip<S>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(send(round_trip))
}

impl<S: CounterStore + 'static> RoundTrip<S> {
    /// Takes the claims to send from the queue, without those whose callers have given up. Also returns another round
    /// trip if more claims wait than fit in one.
    fn begin(&mut self) -> (Vec<Waiting>, Option<Self>) {
        let mut queue = self.shared.queue();
        self.begun = true;
        queue.gathering = false;
        let most = self.shared.config.batch_size;
        let mut batch = Vec::with_capacity(queue.waiting.len().min(most));
        while batch.len() < most
            && let Some(waiting) = queue.waiting.pop_front()
        {
            if !waiting.answer.is_closed() {
                batch.push(waiting);
            }
        }
        (batch, self.shared.next_round_trip(&mut queue))
    }
}

impl<S: CounterStore + 'static> Shared<S> {
    /// A round trip for the waiting claims, if another one may begin and none is about to.
    fn next_round_trip(self: &Arc<Self>, queue: &mut Queue) -> Option<RoundTrip<S>> {
        if queue.gathering || queue.waiting.is_empty() || queue.in_flight >= self.config.concurrent_batches {
            return None;
        }
        queue.gathering = true;
        queue.in_flight += 1;
        Some(RoundTrip { shared: self.clone(), begun: false })
    }
}

impl<S> Shared<S> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: fmt::Debug> fmt::Debug for Batched<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched")
            .field("inner", &self.shared.inner)
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore + 'static> CounterStore for Batched<S> {
    fn promises(&self) -> Promises {
        self.shared.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut caller = Caller { shared: &self.shared, waiting: None };
        let (number, mut receiver) = match self.enqueue(&claims)? {
            // Held until the answer: its drop starts the next round trip.
            Turn::Now(_round_trip) => return self.shared.inner.claim(claims).await,
            Turn::Waiting(number, receiver) => (number, receiver),
        };
        let limit = self.shared.config.timeout;
        let deadline = deadline_after(limit);
        caller.waiting = Some(number);
        let mut answer = timeout(limit / 2, &mut receiver).await;
        caller.waiting = None;
        if answer.is_err() {
            // A check waits for at most half of its time limit to be sent, so that the other half is left for the answer.
            // Otherwise, under overload, every check would be sent just before its time limit ends.
            if self.shared.queue().remove(number) {
                let message = "the check was not sent in time: too many checks were waiting";
                return Err(StoreError::new("batched", ErrorKind::Timeout, message).not_applied());
            }
            answer = timeout_at(deadline, &mut receiver).await;
        }
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                let message = "the round trip was aborted before the answer arrived";
                Err(StoreError::new("batched", ErrorKind::Unreachable, message).maybe_applied())
            }
            Err(_) => {
                let message = "no answer within the time limit";
                Err(StoreError::new("batched", ErrorKind::Timeout, message).maybe_applied())
            }
        }
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.shared.inner.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.shared.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.shared.inner.reset(claims).await
    }
}
