//! A store that counts nothing.

use crate::{
    Answer, Claims, CounterStore, Decisions, Mode, Promises, Refund, StoreError, Time, Timestamp, decide,
};

/// A store that counts nothing: it decides each claim as if it were the first one.
///
/// As the second store of a [`Fallback`](super::Fallback), it admits requests while the first one does not answer
/// ("fail open"). It still refuses a cost above the limit, which no store would ever admit. Its answers say that nothing
/// was charged, so nothing is refunded or renewed afterwards.
///
/// Do not use it by itself: it does not fulfil the contract of a store.
///
/// ```
/// # use ratelimit_core::layers::{Fallback, Open};
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # fn example(store: impl CounterStore, limit: Limit) {
/// let limiter = RateLimiter::new(Fallback::new(store, Open), limit);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

#[deny(clippy::missing_trait_methods)]
impl CounterStore for Open {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Eventual, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut fresh: Vec<_> = claims.iter().map(|_| None).collect();
        let answer = decide(&claims.with_mode(Mode::Peek), &mut fresh);
        Ok(Answer { admitted: answer.admitted || claims.mode() == Mode::Force, ..answer })
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let mut answers = Vec::with_capacity(slices.len());
        for claims in slices {
            answers.push(self.claim(*claims).await);
        }
        answers
    }

    async fn refund(&self, _: Timestamp, _: &[Refund<'_>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn reset(&self, _: Claims<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}
