//! A layer that calls a second store if the first one does not answer.

use smallvec::SmallVec;

use super::{Open, observe};
use crate::receipt::ASK_AGAIN;
use crate::{Answer, Applied, Claims, CounterStore, Promises, Refund, StoreError, Timestamp};

/// A layer that calls a second store, the fallback, if the first one returns an error of any kind.
///
/// Usually the fallback is a store in memory whose limits are [`Divided`](super::Divided) by the number of instances, or
/// [`Open`], which admits everything. Put a [`Breaker`](super::Breaker) and a time limit between this layer and
/// the store; [`Resilience`](super) builds all of them in the right order.
///
/// ```
/// # use ratelimit_core::layers::{Divided, Fallback};
/// # use ratelimit_core::{CheckError, CounterStore, Limit, RateLimiter};
/// # async fn example(redis: impl CounterStore, memory: impl CounterStore, limit: Limit) -> Result<(), CheckError> {
/// let limiter = RateLimiter::new(Fallback::new(redis, Divided::new(memory, 4)), limit);
/// let decision = limiter.check("user:7").await?;
/// if decision.degraded() {
///     println!("decided without Redis");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # How much is admitted
/// The two stores count separately: the fallback does not know what the store has counted, and the store does not learn
/// what the fallback has admitted. With a limit of `L`, and `L / n` on the fallback of each of `n` instances, at
/// most twice as much is admitted in one period as by the store alone, however often it fails and answers again. When it fails again, the fallback
/// still has its counts of the last time, until they expire.
///
/// An error may mean that the claim was charged although no answer arrived ([`Applied::Unknown`]). The fallback then
/// charges as well. The units count twice, so less is admitted and never more.
///
/// # Afterwards
/// A decision remembers which store charged it. A refund, a settlement that returns units, and a release go to that
/// store. If it does not answer, they fail, and the units stay charged until they expire.
///
/// An additional charge (a settlement above the estimate, the renewal of a lease) goes to the first store, or to the
/// fallback if the first store does not answer, whichever of them has charged before. So a permit is kept while the first
/// store does not answer: its lease is renewed on the fallback, and moves back with the first renewal that the store
/// answers. It counts on both for at most one lease.
///
/// A reset goes to both stores, and is an error if one of them fails. It does not reach the fallbacks of other instances.
///
/// # Guarantees
/// [`promises`](CounterStore::promises) returns those of the first store. They hold while it answers.
///
/// Do not use a `Fallback` as one of the two stores of another: a receipt can only distinguish two stores.
#[derive(Clone, Debug)]
pub struct Fallback<S, F> {
    store: S,
    fallback: F,
}

impl<S: CounterStore, F: CounterStore> Fallback<S, F> {
    /// Calls `store`, and `fallback` if `store` returns an error.
    pub fn new(store: S, fallback: F) -> Self {
        Self { store, fallback }
    }

    /// The first store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The second store.
    pub fn fallback(&self) -> &F {
        &self.fallback
    }
}

impl<S: CounterStore> Fallback<S, Open> {
    /// Calls `store`, and admits the request if `store` returns an error.
    pub fn open(store: S) -> Self {
        Self::new(store, Open)
    }
}

/// Converts the fallback's answer to that of this layer.
fn degraded(
    claims: &Claims<'_>,
    error: &StoreError,
    answer: Result<Answer, StoreError>,
) -> Result<Answer, StoreError> {
    let mut answer = answer.map_err(|second| both(error, &second))?;
    observe::fell_back(error);
    for (claim, verdict) in claims.iter().zip(&mut answer.verdicts) {
        verdict.receipt = verdict.receipt.of_fallback();
        // A cost that only the first store can admit.
        if verdict.fits_at.is_none() && claim.cost <= claim.meter.limit() {
            verdict.fits_at = Some(answer.now + ASK_AGAIN);
        }
    }
    Ok(answer)
}

/// The error if both stores have failed. Its kind is that of the first one, which has to be repaired.
fn both(first: &StoreError, second: &StoreError) -> StoreError {
    let message = format!("{first}; and the fallback: {second}");
    let error = StoreError::new("fallback", first.kind(), message).not_applied();
    let unknown = [first, second].iter().any(|error| error.applied() == Applied::Unknown);
    if unknown { error.maybe_applied() } else { error }
}

/// The outcome of a call that both stores have to do.
fn together(first: Result<(), StoreError>, second: Result<(), StoreError>) -> Result<(), StoreError> {
    match (first, second) {
        (Ok(()), Ok(())) => Ok(()),
        // The other one has done it.
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error.maybe_applied()),
        (Err(first), Err(second)) => Err(both(&first, &second)),
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore, F: CounterStore> CounterStore for Fallback<S, F> {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        match self.store.claim(claims).await {
            Ok(answer) => Ok(answer),
            Err(error) => degraded(&claims, &error, self.fallback.claim(claims).await),
        }
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let mut answers = self.store.claim_many(slices).await;
        let failed = slices.iter().zip(&answers).filter(|(_, answer)| answer.is_err());
        let failed: Vec<Claims<'_>> = failed.map(|(claims, _)| *claims).collect();
        if failed.is_empty() {
            return answers;
        }
        let seconds = self.fallback.claim_many(&failed).await;
        let firsts = answers.iter_mut().filter(|answer| answer.is_err());
        for ((first, claims), second) in firsts.zip(failed).zip(seconds) {
            if let Err(error) = first {
                *first = degraded(&claims, error, second);
            }
        }
        answers
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let (of_fallback, of_store): (SmallVec<[Refund<'_>; 4]>, SmallVec<[Refund<'_>; 4]>) =
            refunds.iter().copied().partition(|refund| refund.receipt.is_of_fallback());
        let stored = if of_store.is_empty() { Ok(()) } else { self.store.refund(now, &of_store).await };
        if of_fallback.is_empty() {
            return stored;
        }
        let of_fallback: SmallVec<[Refund<'_>; 4]> = of_fallback
            .into_iter()
            .map(|refund| Refund { receipt: refund.receipt.for_store(), ..refund })
            .collect();
        let refunded = self.fallback.refund(now, &of_fallback).await;
        if of_store.is_empty() { refunded } else { together(stored, refunded) }
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        together(self.store.reset(claims).await, self.fallback.reset(claims).await)
    }
}
