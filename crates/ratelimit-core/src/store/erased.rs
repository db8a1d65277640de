//! The contract as a trait object, for a store that is chosen at run time.

use std::fmt::Debug;

use crate::{Answer, Claims, CounterStore, Promises, Refund, StoreError, Timestamp};

/// [`CounterStore`] as a trait object, for a store that is chosen at run time.
///
/// Every store implements it, and `Arc<dyn DynCounterStore>` is a store again. Each call boxes its future.
///
/// ```
/// use ratelimit_core::{DynCounterStore, Limit, RateLimiter};
/// use std::sync::Arc;
///
/// fn limiter(store: Arc<dyn DynCounterStore>, limit: Limit) -> RateLimiter<Arc<dyn DynCounterStore>> {
///     RateLimiter::new(store, limit)
/// }
/// ```
#[async_trait::async_trait]
pub trait DynCounterStore: Debug + Send + Sync {
    /// See [`CounterStore::promises`].
    fn dyn_promises(&self) -> Promises;
    /// See [`CounterStore::claim`].
    async fn dyn_claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError>;
    /// See [`CounterStore::claim_many`].
    async fn dyn_claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>>;
    /// See [`CounterStore::refund`].
    async fn dyn_refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError>;
    /// See [`CounterStore::reset`].
    async fn dyn_reset(&self, claims: Claims<'_>) -> Result<(), StoreError>;
}

#[async_trait::async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> DynCounterStore for S {
    fn dyn_promises(&self) -> Promises {
        self.promises()
    }

    async fn dyn_claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.claim(claims).await
    }

    async fn dyn_claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.claim_many(slices).await
    }

    async fn dyn_refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.refund(now, refunds).await
    }

    async fn dyn_reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.reset(claims).await
    }
}

#[deny(clippy::missing_trait_methods)]
impl CounterStore for dyn DynCounterStore + '_ {
    fn promises(&self) -> Promises {
        self.dyn_promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.dyn_claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.dyn_claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.dyn_refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.dyn_reset(claims).await
    }
}
