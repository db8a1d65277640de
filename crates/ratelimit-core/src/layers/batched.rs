//! Natural batching: claims that arrive during a round trip are sent together in the next one.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::smallvec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::BatchConfig;
use crate::kit::{OwnedClaims, OwnedName, RecentPeak};
use crate::{Answer, Claims, CounterStore, ErrorKind, Promises, Refund, StoreError, Timestamp, Verdict};

/// A layer that sends concurrent claims together under load.
///
/// As long as recently no more than `alone` claims were concurrent, each is sent immediately and by itself, as without
/// this layer. With more, a claim waits for others that are sent at the same moment, and claims that arrive while
/// `trips` round trips are in progress wait until one of them ends. A batch is sent with one
/// [`CounterStore::claim_many`], in the order of arrival. Each check is decided for itself, exactly as if they had been
/// sent one after another. So batching adds no latency at low load, and reduces the number of calls to a busy store.
///
/// If a caller drops its future before its claim was sent, nothing is charged. If it drops it later, the others in the
/// batch still get their answers. Refunds, resets and calls to `claim_many` are passed to the store directly.
///
/// Requires a tokio runtime.
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
    line: Mutex<Line>,
}

/// Round trips in progress, and claims that wait.
#[derive(Default)]
struct Line {
    /// Round trips in progress, including one that is about to begin.
    under_way: usize,
    /// A round trip is about to begin with the waiting claims.
    gathering: bool,
    callers: RecentPeak,
    waiting: VecDeque<Waiting>,
    /// The number of the next claim to arrive.
    next: u64,
}

/// A claim in progress. It is removed from the count when it ends, for whatever reason.
struct Presence<'a, S>(&'a Shared<S>);

impl<S> Drop for Presence<'_, S> {
    fn drop(&mut self) {
        self.0.line().callers.leave();
    }
}

struct Waiting {
    number: u64,
    claims: Box<OwnedClaims<OwnedName>>,
    answer: oneshot::Sender<Told>,
}

/// The answer to a waiting claim. It is moved several times, and an answer with one verdict is smaller than an
/// [`Answer`] with room for several.
enum Told {
    One { admitted: bool, charged: bool, now: Timestamp, verdict: Verdict },
    Several(Box<Answer>),
    Failed(StoreError),
}

impl From<Result<Answer, StoreError>> for Told {
    fn from(answer: Result<Answer, StoreError>) -> Self {
        match answer {
            Ok(Answer { admitted, charged, now, verdicts }) if verdicts.len() == 1 => {
                Self::One { admitted, charged, now, verdict: verdicts[0] }
            }
            Ok(answer) => Self::Several(Box::new(answer)),
            Err(error) => Self::Failed(error),
        }
    }
}

impl From<Told> for Result<Answer, StoreError> {
    fn from(told: Told) -> Self {
        match told {
            Told::One { admitted, charged, now, verdict } => {
                Ok(Answer { admitted, charged, now, verdicts: smallvec![verdict] })
            }
            Told::Several(answer) => Ok(*answer),
            Told::Failed(error) => Err(error),
        }
    }
}

impl<S: CounterStore + 'static> Batched<S> {
    /// Wraps `inner` with the default configuration.
    pub fn new(inner: S) -> Self {
        Self::with_config(inner, BatchConfig::default())
    }

    /// Wraps `inner` with this configuration.
    pub fn with_config(inner: S, config: BatchConfig) -> Self {
        let config = BatchConfig {
            trips: config.trips.max(1),
            most: config.most.max(1),
            waiting: config.waiting.max(1),
            ..config
        };
        Self { shared: Arc::new(Shared { inner, config, line: Mutex::default() }) }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    /// A round trip of its own if there are few claims and none waits; otherwise a place in the queue.
    fn line_up(&self, claims: &Claims<'_>) -> Result<Place<S>, StoreError> {
        let config = &self.shared.config;
        let mut line = self.shared.line();
        line.callers.enter();
        let few = line.callers.get() <= config.alone;
        if line.waiting.is_empty() && few {
            line.under_way += 1;
            return Ok(Place::UnderWay(Trip { shared: self.shared.clone(), begun: true }));
        }
        if line.waiting.len() >= config.waiting {
            let message = "too many checks are waiting already";
            return Err(StoreError::new("batched", ErrorKind::Contended, message));
        }
        let (answer, receiver) = oneshot::channel();
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(Waiting {
            number,
            claims: Box::new(OwnedClaims::new(claims, OwnedName::new)),
            answer,
        });
        let trip = self.shared.next_trip(&mut line);
        drop(line);
        if let Some(trip) = trip {
            tokio::spawn(go_soon(trip));
        }
        Ok(Place::InLine(number, receiver))
    }
}

enum Place<S: CounterStore + 'static> {
    UnderWay(Trip<S>),
    InLine(u64, oneshot::Receiver<Told>),
}

/// One of the concurrent round trips. When it ends, for whatever reason, the waiting claims are sent next.
struct Trip<S: CounterStore + 'static> {
    shared: Arc<Shared<S>>,
    begun: bool,
}

impl<S: CounterStore + 'static> Drop for Trip<S> {
    fn drop(&mut self) {
        let mut line = self.shared.line();
        line.under_way -= 1;
        if !self.begun {
            line.gathering = false;
        }
        match Handle::try_current() {
            Ok(runtime) if self.begun => {
                let trip = self.shared.next_trip(&mut line);
                drop(line);
                if let Some(trip) = trip {
                    runtime.spawn(go(trip));
                }
            }
            // The runtime has ended. Waiting claims are sent when another round trip ends; if there is none, dropping
            // their senders reports the loss.
            _ if line.under_way == 0 => line.waiting.clear(),
            _ => {}
        }
    }
}

/// The first of many claims is not alone for long: others got their answers together with it, and will claim again as well.
async fn go_soon<S: CounterStore + 'static>(trip: Trip<S>) {
    tokio::task::yield_now().await;
    go(trip).await;
}

/// Makes one round trip with the claims that have waited longest. When it ends, the next one begins.
async fn go<S: CounterStore + 'static>(mut trip: Trip<S>) {
    let (batch, another) = trip.begin();
    if let Some(another) = another {
        tokio::spawn(go_again(another));
    }
    if batch.is_empty() {
        return;
    }
    let claims: Vec<_> = batch.iter().flat_map(|waiting| waiting.claims.borrowed()).collect();
    let mut left = claims.as_slice();
    let mut slices = Vec::with_capacity(batch.len());
    for Waiting { claims, .. } in &batch {
        let (own, others) = left.split_at(claims.claims.len());
        slices.push(Claims::known(claims.now, claims.mode, own));
        left = others;
    }
    let answers = trip.shared.inner.claim_many(&slices).await;
    drop(slices);
    drop(claims);
    for (waiting, answer) in batch.into_iter().zip(answers) {
        // If the receiver is gone, the caller has dropped its future.
        let _ = waiting.answer.send(answer.into());
    }
}

/// [`go`] as a type that can be named, because it starts another round trip like itself.
fn go_again<S: CounterStore + 'static>(trip: Trip<S>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(go(trip))
}

impl<S: CounterStore + 'static> Trip<S> {
    /// The claims to send, without those whose callers have given up; and another round trip if there are more than fit in one.
    fn begin(&mut self) -> (Vec<Waiting>, Option<Self>) {
        let mut line = self.shared.line();
        self.begun = true;
        line.gathering = false;
        let most = self.shared.config.most;
        let mut batch = Vec::with_capacity(line.waiting.len().min(most));
        while batch.len() < most
            && let Some(waiting) = line.waiting.pop_front()
        {
            if !waiting.answer.is_closed() {
                batch.push(waiting);
            }
        }
        (batch, self.shared.next_trip(&mut line))
    }
}

impl<S: CounterStore + 'static> Shared<S> {
    /// A round trip for the waiting claims, if another one may begin and none is about to.
    fn next_trip(self: &Arc<Self>, line: &mut Line) -> Option<Trip<S>> {
        if line.gathering || line.waiting.is_empty() || line.under_way >= self.config.trips {
            return None;
        }
        line.gathering = true;
        line.under_way += 1;
        Some(Trip { shared: self.clone(), begun: false })
    }
}

impl<S> Shared<S> {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a waiting claim from the queue, if it is still there.
    fn leave(&self, number: u64) -> bool {
        let mut line = self.line();
        let place = line.waiting.binary_search_by_key(&number, |waiting| waiting.number);
        place.is_ok_and(|place| line.waiting.remove(place).is_some())
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
        let _presence = Presence(&self.shared);
        let (number, mut receiver) = match self.line_up(&claims)? {
            Place::UnderWay(_trip) => return self.shared.inner.claim(claims).await,
            Place::InLine(number, receiver) => (number, receiver),
        };
        match tokio::time::timeout(self.shared.config.patience, &mut receiver).await {
            Ok(Ok(told)) => told.into(),
            Ok(Err(_)) => {
                let message = "the round trip was aborted before the answer arrived";
                Err(StoreError::new("batched", ErrorKind::Unreachable, message).maybe_applied())
            }
            Err(_) if self.shared.leave(number) => {
                let message = "the check was not sent in time: too many checks were waiting";
                Err(StoreError::new("batched", ErrorKind::Timeout, message).not_applied())
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
