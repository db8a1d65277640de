//! A layer that limits how long a store may take.

use std::time::Duration;

use crate::{Answer, Claims, CounterStore, ErrorKind, Promises, Refund, StoreError, Timestamp};

/// A layer whose calls fail with [`ErrorKind::Timeout`] if the store has not answered in time. The claim may have been
/// charged all the same.
///
/// The stores of this project have time limits of their own. Use this for a store that has none, or if you need a shorter
/// one. It requires a tokio runtime with its time driver.
///
/// ```
/// # use ratelimit_core::layers::Timeout;
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # use std::time::Duration;
/// # fn example(store: impl CounterStore, limit: Limit) {
/// let limiter = RateLimiter::new(Timeout::new(store, Duration::from_millis(20)), limit);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
}

impl<S: CounterStore> Timeout<S> {
    /// Wraps `inner` and limits each call to `limit`.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit }
    }

    async fn bound<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        tokio::time::timeout(self.limit, call).await.unwrap_or_else(|_| Err(self.late()))
    }

    fn late(&self) -> StoreError {
        StoreError::new("timeout", ErrorKind::Timeout, format!("no answer within {:?}", self.limit))
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> CounterStore for Timeout<S> {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.bound(self.inner.claim(claims)).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        match tokio::time::timeout(self.limit, self.inner.claim_many(slices)).await {
            Ok(answers) => answers,
            Err(_) => slices.iter().map(|_| Err(self.late())).collect(),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.bound(self.inner.refund(now, refunds)).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.bound(self.inner.reset(claims)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Decisions;
    use crate::{Claim, Limit, MeterId, Mode, Time};

    /// A store whose server has stopped answering.
    #[derive(Debug)]
    struct Silent;

    impl CounterStore for Silent {
        fn promises(&self) -> Promises {
            Promises::new(Decisions::Exact, Time::Caller)
        }

        async fn claim(&self, _: Claims<'_>) -> Result<Answer, StoreError> {
            std::future::pending().await
        }

        async fn refund(&self, _: Timestamp, _: &[Refund<'_>]) -> Result<(), StoreError> {
            std::future::pending().await
        }

        async fn reset(&self, _: Claims<'_>) -> Result<(), StoreError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_to_a_silent_store_times_out() {
        let store = Timeout::new(Silent, Duration::from_millis(20));
        let limit: Limit = "1/s".parse().unwrap();
        let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
        let claims = [Claim { id, cost: 1, meter: limit.meter_for(b"k") }];
        let claims = Claims::new(Timestamp::EPOCH, Mode::Charge, &claims).unwrap();
        let late = |error: StoreError| assert_eq!(error.kind(), ErrorKind::Timeout);
        late(store.claim(claims).await.unwrap_err());
        let answers = store.claim_many(&[claims, claims]).await;
        assert_eq!(answers.len(), 2);
        answers.into_iter().for_each(|answer| late(answer.unwrap_err()));
        late(store.refund(Timestamp::EPOCH, &[]).await.unwrap_err());
        late(store.reset(claims).await.unwrap_err());
    }
}
