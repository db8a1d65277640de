//! Natural batching: what arrives during a trip goes together in the next one.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::smallvec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::owned::OwnedSlice;
use crate::{
    Answer, Claims, CounterStore, Crowd, ErrorKind, Promises, Refund, StoreError, Timestamp, Verdict,
};

/// A store whose claims share trips under load.
///
/// While there were lately no more than `alone` claims at once, each goes at once and by itself, as it would without this.
/// With more, a claim lets those join it that are about to be put in the same moment, and what arrives while `trips` are
/// under way waits until one of them is back. What goes together goes in one [`CounterStore::claim_many`]: in the order of
/// arrival, each decided for itself, exactly as if they had been put to the store one after another. So nothing is added
/// to the time of a check while there is little to do, and a busy store is asked seldom.
///
/// A caller that drops its future before its claim has gone leaves no trace; one that drops it later keeps nobody else
/// from an answer. Refunds, resets and calls to `claim_many` go straight to the store.
///
/// Needs a tokio runtime.
///
/// ```
/// # use ratelimit_core::{Batched, CounterStore, Limit, RateLimiter};
/// # fn example<S: CounterStore + 'static>(store: S) -> Result<(), ratelimit_core::ParseLimitError> {
/// let limiter = RateLimiter::new(Batched::new(store), "100/min".parse::<Limit>()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Batched<S> {
    shared: Arc<Shared<S>>,
}

/// How a [`Batched`] store batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// How many trips may be under way at once; at least one. With more than one, claims of different trips may overtake
    /// each other, as they may without batching.
    pub trips: usize,
    /// Up to how many claims at once go each by itself, without sharing trips: few of them lose more time by waiting for one
    /// another than the store saves.
    pub alone: usize,
    /// The most slices in one trip; at least one.
    pub most: usize,
    /// The most slices that wait or are about to go; at least one. Further ones get an error at once
    /// ([`ErrorKind::Contended`]), and are not charged.
    pub waiting: usize,
    /// How long a slice that has to wait for its turn may take, with its trip. Then it gets an error
    /// ([`ErrorKind::Timeout`]): it is not charged if its turn had not come, and may be charged otherwise. The store's own time
    /// limit counts from when its trip begins.
    pub patience: Duration,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { trips: 3, alone: 16, most: 128, waiting: 100_000, patience: Duration::from_secs(1) }
    }
}

struct Shared<S> {
    inner: S,
    config: BatchConfig,
    line: Mutex<Line>,
}

/// Who is under way, and who waits.
#[derive(Default)]
struct Line {
    /// Trips, also the one that is about to go.
    under_way: usize,
    /// A trip is about to go with those who wait.
    gathering: bool,
    crowd: Crowd,
    waiting: VecDeque<Waiting>,
    /// The number of the next to come.
    next: u64,
}

/// A claim that has begun; when it ends, however it ends, it is no longer there.
struct Presence<'a, S>(&'a Shared<S>);

impl<S> Drop for Presence<'_, S> {
    fn drop(&mut self) {
        self.0.line().crowd.leave();
    }
}

struct Waiting {
    number: u64,
    slice: Box<OwnedSlice>,
    answer: oneshot::Sender<Told>,
}

/// What somebody who waits is told. It is moved often on its way, and an answer of one verdict is smaller than an
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
    /// `inner` with the default configuration.
    pub fn new(inner: S) -> Self {
        Self::with_config(inner, BatchConfig::default())
    }

    /// `inner` with this configuration.
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

    /// A place under way, if there are few and nobody waits; otherwise a place in the line.
    fn line_up(&self, claims: &Claims<'_>) -> Result<Place<S>, StoreError> {
        let config = &self.shared.config;
        let mut line = self.shared.line();
        line.crowd.come();
        let few = line.crowd.size() <= config.alone;
        if line.waiting.is_empty() && few {
            line.under_way += 1;
            return Ok(Place::UnderWay(Trip { shared: self.shared.clone(), begun: true }));
        }
        if line.waiting.len() >= config.waiting {
            let message = "too many checks wait for their turn already";
            return Err(StoreError::new("batched", ErrorKind::Contended, message));
        }
        let (answer, receiver) = oneshot::channel();
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(Waiting { number, slice: OwnedSlice::new(claims), answer });
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

/// One of the trips that may be under way. When it ends, however it ends, those who wait go next.
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
            // The runtime has ended. Who waits goes when another trip ends, and if there is none is told by the loss of the
            // sender.
            _ if line.under_way == 0 => line.waiting.clear(),
            _ => {}
        }
    }
}

/// The first of many is not alone for long: others have got their answers together with it, and ask again like it.
async fn go_soon<S: CounterStore + 'static>(trip: Trip<S>) {
    tokio::task::yield_now().await;
    go(trip).await;
}

/// Makes one trip with those who have waited longest. The end of the trip sees to the others.
async fn go<S: CounterStore + 'static>(mut trip: Trip<S>) {
    let (batch, another) = trip.begin();
    if let Some(another) = another {
        tokio::spawn(go_again(another));
    }
    if batch.is_empty() {
        return;
    }
    let claims: Vec<_> = batch.iter().flat_map(|waiting| waiting.slice.claims()).collect();
    let mut left = claims.as_slice();
    let mut slices = Vec::with_capacity(batch.len());
    for Waiting { slice, .. } in &batch {
        let (own, others) = left.split_at(slice.len());
        slices.push(slice.slice(own));
        left = others;
    }
    let answers = trip.shared.inner.claim_many(&slices).await;
    drop(slices);
    drop(claims);
    for (waiting, answer) in batch.into_iter().zip(answers) {
        // Who is not there any more has dropped the future.
        let _ = waiting.answer.send(answer.into());
    }
}

/// [`go`] as a type that can be named: it begins another trip like itself.
fn go_again<S: CounterStore + 'static>(trip: Trip<S>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(go(trip))
}

impl<S: CounterStore + 'static> Trip<S> {
    /// Those who go, without those who have given up; and another trip, if there are more of them than go in one.
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
    /// A trip for those who wait, if one may go and none is about to.
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

    /// Takes one who waits out of the line, if it is still there.
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
                let message = "the trip ended before it had an answer";
                Err(StoreError::new("batched", ErrorKind::Unreachable, message).maybe_applied())
            }
            Err(_) if self.shared.leave(number) => {
                let message = "it waited in vain for its turn";
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
