//! A store that counts nothing.

use crate::meter::decide;
use crate::store::Decisions;
use crate::{Answer, Claims, CounterStore, Mode, Promises, Refund, StoreError, Time, Timestamp};

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

impl CounterStore for Open {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Eventual, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut fresh: Vec<_> = claims.iter().map(|_| None).collect();
        let answer = decide(&claims.with_mode(Mode::Peek), &mut fresh);
        Ok(Answer { admitted: answer.admitted || claims.mode() == Mode::Force, ..answer })
    }

    async fn refund(&self, _: Timestamp, _: &[Refund<'_>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn reset(&self, _: Claims<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}
