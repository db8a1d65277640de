//! A layer that bounds the number of calls in progress.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Answer, Claims, CounterStore, ErrorKind, Promises, Refund, StoreError, Timestamp};

/// A layer that limits the number of calls to the store that are in progress. Further calls fail with
/// [`ErrorKind::Overloaded`] and charge nothing, immediately or after [a wait](Self::with_wait).
///
/// So a slow store can only take a bounded part of the process: connections, memory, tasks. Dropping a future frees its
/// place. A [`claim_many`](CounterStore::claim_many) is one call.
///
/// ```
/// # use ratelimit_core::layers::Bulkhead;
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # use std::time::Duration;
/// # fn example(store: impl CounterStore, limit: Limit) {
/// let store = Bulkhead::new(store, 256).with_wait(Duration::from_millis(5));
/// let limiter = RateLimiter::new(store, limit);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bulkhead<S> {
    inner: S,
    places: Arc<Semaphore>,
    most: usize,
    wait: Duration,
}

impl<S: CounterStore> Bulkhead<S> {
    /// Wraps `inner`, with at most `most` calls at once, at least one.
    pub fn new(inner: S, most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { inner, places: Arc::new(Semaphore::new(most)), most, wait: Duration::ZERO }
    }

    /// Lets a call wait this long for a place before it fails; zero by default. Calls get places in the order of their
    /// arrival.
    ///
    /// Inside a [`Timeout`](super::Timeout) the wait should be shorter than its limit. Otherwise a call that gets no place is
    /// late before it is [`ErrorKind::Overloaded`], and a [`Breaker`](super::Breaker) counts it as a failure of the store.
    ///
    /// A wait that is not zero requires a tokio runtime with its time driver.
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    async fn enter(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        let waited = match self.wait {
            Duration::ZERO => None,
            wait => tokio::time::timeout(wait, self.places.acquire()).await.ok().and_then(Result::ok),
        };
        waited.ok_or_else(|| {
            let message = format!("{} are allowed at once, and none ended within {:?}", self.most, self.wait);
            StoreError::new("bulkhead", ErrorKind::Overloaded, message)
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> CounterStore for Bulkhead<S> {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let _place = self.enter().await?;
        self.inner.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        match self.enter().await {
            Ok(_place) => self.inner.claim_many(slices).await,
            Err(error) => slices.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let _place = self.enter().await?;
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let _place = self.enter().await?;
        self.inner.reset(claims).await
    }
}
