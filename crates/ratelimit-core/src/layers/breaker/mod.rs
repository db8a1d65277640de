//! A layer that stops calling a store whose calls fail.

mod circuit;
mod config;
#[cfg(all(test, not(miri)))]
mod model;
mod refusal;
mod sync;

use std::sync::Arc;

use circuit::{Circuit, Outcome};
pub use config::BreakerConfig;

use super::observe;

use crate::{Answer, Claims, Clock, CounterStore, Promises, Refund, StoreError, SystemClock, Timestamp};

/// A circuit breaker: while a store does not answer, calls fail immediately instead of waiting for it.
///
/// - **Closed**, the usual state: calls reach the store. This costs three atomic reads.
/// - **Open**: after [`failures`](BreakerConfig::failures) consecutive calls have failed, calls fail with
///   [`ErrorKind::CircuitOpen`](crate::ErrorKind::CircuitOpen) for a pause. The error says how long ago the breaker opened,
///   when the next attempt is, and what the last failure was.
/// - **Half-open**: after the pause, one call is the probe that reaches the store. Others still fail immediately. If the
///   store answers, the breaker closes. If the probe fails, the next pause is twice as long, up to
///   [`longest_pause`](BreakerConfig::longest_pause). If the caller drops the probe's future, a pause as long as the last
///   one begins, and the next call after it is the probe.
///
/// A call has failed if it returns an error that shows that the store is unavailable: `Unreachable`, `Timeout`, `Denied`,
/// `ReadOnly` or `Server`. An error that concerns one meter or one kind of call (`Full`, `Corrupt`, `Unsupported`) shows
/// that the store answers. Errors of all other kinds are ignored, and so are the outcomes of calls that began before the
/// breaker closed.
///
/// The breaker counts consecutive failures, not their share. A dead store fails every call, so the breaker opens after five
/// calls by default. A store that fails a call now and then stays in use, because its counts are worth more than those of a
/// fallback.
///
/// Put a time limit below this layer, so that calls to a store that hangs fail: [`Timeout`](super), or the store's own. A
/// call whose caller drops it earlier does not count as a failure, and would never open the breaker.
///
/// Clones share the state. A breaker runs on any runtime: it neither sleeps nor spawns.
///
/// ```
/// # use ratelimit_core::layers::{Breaker, BreakerConfig};
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # fn example(store: impl CounterStore, limit: Limit) {
/// let store = Breaker::new(store, BreakerConfig::default().failures(3));
/// let limiter = RateLimiter::new(store, limit);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Breaker<S, C = SystemClock> {
    inner: S,
    clock: C,
    circuit: Arc<Circuit>,
}

impl<S: CounterStore> Breaker<S> {
    /// Wraps `inner`; the breaker is closed.
    pub fn new(inner: S, config: BreakerConfig) -> Self {
        Self { inner, clock: SystemClock::new(), circuit: Arc::new(Circuit::new(config)) }
    }
}

impl<S: CounterStore, C: Clock> Breaker<S, C> {
    /// Measures pauses on another clock.
    #[must_use]
    pub fn with_clock<D: Clock>(self, clock: D) -> Breaker<S, D> {
        Breaker { inner: self.inner, clock, circuit: self.circuit }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Whether calls fail without reaching the store, except for probes.
    pub fn is_open(&self) -> bool {
        !self.circuit.is_closed()
    }

    async fn guard<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let entered = self.circuit.enter(&self.clock)?;
        let begun = observe::begin(&self.clock);
        let result = call.await;
        observe::called(name, begun, &self.clock, result.as_ref().err());
        entered.ended(Outcome::of(&result));
        result
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore, C: Clock + std::fmt::Debug> CounterStore for Breaker<S, C> {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.guard("claim", self.inner.claim(claims)).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let entered = match self.circuit.enter(&self.clock) {
            Ok(entered) => entered,
            Err(error) => return slices.iter().map(|_| Err(error.clone())).collect(),
        };
        let begun = observe::begin(&self.clock);
        let answers = self.inner.claim_many(slices).await;
        // This is one call: the store has answered if it has answered for one slice.
        let is_answer =
            |answer: &&Result<Answer, StoreError>| matches!(Outcome::of(answer), Outcome::Answered);
        let decisive = answers.iter().find(is_answer).or_else(|| answers.last());
        let error = decisive.and_then(|answer| answer.as_ref().err());
        observe::called("claim_many", begun, &self.clock, error);
        entered.ended(decisive.map_or(Outcome::Unknown, Outcome::of));
        answers
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.guard("refund", self.inner.refund(now, refunds)).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.guard("reset", self.inner.reset(claims)).await
    }
}
