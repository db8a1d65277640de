//! Natural batching: what arrives during a trip goes together in the next one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::owned::OwnedSlice;
use crate::{Answer, Claims, CounterStore, Crowd, ErrorKind, Promises, Refund, StoreError, Timestamp};

/// A store whose claims share trips under load.
///
/// While there were lately no more than `alone` claims at once, each goes at once and by itself, as it would without this.
/// With more, what arrives while `trips` of them are under way waits, and goes in one [`CounterStore::claim_many`] when
/// one of them is back: in the order of arrival, each decided for itself, exactly as if they had been put to the store
/// one after another. So nothing is added to the time of a check while there is little to do, and a busy store is asked
/// seldom.
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
    /// The most slices that wait. Further ones get an error at once ([`ErrorKind::Contended`]), and are not charged.
    pub waiting: usize,
    /// How long a slice that has to wait for its turn may take, with its trip. Then it gets an error
    /// ([`ErrorKind::Timeout`]): it is not charged if its turn had not come, and may be charged otherwise. The store's own time
    /// limit counts from when its trip begins.
    pub patience: Duration,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { trips: 2, alone: 16, most: 128, waiting: 100_000, patience: Duration::from_secs(1) }
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
    under_way: usize,
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
    slice: OwnedSlice,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
}

impl<S: CounterStore + 'static> Batched<S> {
    /// `inner` with the default configuration.
    pub fn new(inner: S) -> Self {
        Self::with_config(inner, BatchConfig::default())
    }

    /// `inner` with this configuration.
    pub fn with_config(inner: S, config: BatchConfig) -> Self {
        let config = BatchConfig { trips: config.trips.max(1), most: config.most.max(1), ..config };
        Self { shared: Arc::new(Shared { inner, config, line: Mutex::default() }) }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    /// A place under way, if there is one and nobody waits for it; otherwise a place in the line.
    fn line_up(&self, claims: &Claims<'_>) -> Result<Place<S>, StoreError> {
        let mut line = self.shared.line();
        line.crowd.come();
        let few = line.crowd.size() <= self.shared.config.alone;
        if line.waiting.is_empty() && (few || line.under_way < self.shared.config.trips) {
            line.under_way += 1;
            return Ok(Place::UnderWay(Trip(self.shared.clone())));
        }
        if line.waiting.len() >= self.shared.config.waiting {
            let message = "too many checks wait for their turn already";
            return Err(StoreError::new("batched", ErrorKind::Contended, message));
        }
        let (answer, receiver) = oneshot::channel();
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(Waiting { number, slice: OwnedSlice::new(claims), answer });
        Ok(Place::InLine(number, receiver))
    }
}

enum Place<S: CounterStore + 'static> {
    UnderWay(Trip<S>),
    InLine(u64, oneshot::Receiver<Result<Answer, StoreError>>),
}

/// One of the trips that may be under way. When it ends, however it ends, those who wait go next.
struct Trip<S: CounterStore + 'static>(Arc<Shared<S>>);

impl<S: CounterStore + 'static> Drop for Trip<S> {
    fn drop(&mut self) {
        let mut line = self.0.line();
        if line.waiting.is_empty() || line.under_way > self.0.config.trips {
            line.under_way -= 1;
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                drop(line);
                runtime.spawn(go(Trip(self.0.clone())));
            }
            // Nobody is left to go: who waits is told by the loss of the sender.
            Err(_) => {
                line.under_way -= 1;
                line.waiting.clear();
            }
        }
    }
}

/// Makes one trip with those who have waited longest. The end of the trip sees to the others.
async fn go<S: CounterStore + 'static>(trip: Trip<S>) {
    let batch = trip.0.next_batch();
    let buffers: Vec<_> = batch.iter().map(|waiting| waiting.slice.claims()).collect();
    let slices: Vec<_> =
        batch.iter().zip(&buffers).map(|(waiting, claims)| waiting.slice.slice(claims)).collect();
    if slices.is_empty() {
        return;
    }
    let answers = trip.0.inner.claim_many(&slices).await;
    drop(slices);
    drop(buffers);
    for (waiting, answer) in batch.into_iter().zip(answers) {
        // Who is not there any more has dropped the future.
        let _ = waiting.answer.send(answer);
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

    /// The next of those who wait, without those who have given up.
    fn next_batch(&self) -> Vec<Waiting> {
        let mut line = self.line();
        let mut batch = Vec::with_capacity(line.waiting.len().min(self.config.most));
        while batch.len() < self.config.most
            && let Some(waiting) = line.waiting.pop_front()
        {
            if !waiting.answer.is_closed() {
                batch.push(waiting);
            }
        }
        batch
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
        let answer = match tokio::time::timeout(self.shared.config.patience, &mut receiver).await {
            Ok(answer) => answer,
            Err(_) if self.shared.leave(number) => {
                let message = "it waited in vain for its turn";
                return Err(StoreError::new("batched", ErrorKind::Timeout, message).not_applied());
            }
            Err(_) => {
                let message = "no answer within the time limit";
                return Err(StoreError::new("batched", ErrorKind::Timeout, message).maybe_applied());
            }
        };
        answer.unwrap_or_else(|_| {
            let message = "the trip ended before it had an answer";
            Err(StoreError::new("batched", ErrorKind::Unreachable, message).maybe_applied())
        })
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
