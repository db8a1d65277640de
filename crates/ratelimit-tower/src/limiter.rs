//! What the layer needs of a limiter, whatever its store and its clock.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_core::{
    Algorithm, CheckError, Clock, CounterStore, Decision, LimitStatus, Mode, Permit, RateLimiter, Request,
    Timer, Timestamp,
};

use crate::observe;

/// A limiter that can check and settle requests.
#[async_trait]
pub(crate) trait Limiter: Send + Sync {
    /// Checks a request. [`Mode::Peek`] charges nothing, but counts a refusal for bans.
    async fn decide<'l>(&'l self, request: &Request<'_, 'l>, mode: Mode) -> Result<Decision<'l>, CheckError>;

    /// Settles a decision at these true costs of its keys; `None` leaves the charge of a key as it is.
    async fn settle_keys(&self, decision: &Decision<'_>, costs: &[Option<u64>]) -> Result<(), CheckError>;

    /// Holds what a decision of this limiter has taken under concurrency limits.
    fn hold(self: Arc<Self>, decision: Decision<'static>) -> Permit;
}

/// A limiter on whose clock requests can wait.
#[async_trait]
pub(crate) trait TimedLimiter: Limiter {
    fn now(&self) -> Timestamp;

    async fn sleep(&self, duration: Duration);
}

#[async_trait]
impl<S: CounterStore + 'static, C: Clock + 'static> Limiter for RateLimiter<S, C> {
    async fn decide<'l>(&'l self, request: &Request<'_, 'l>, mode: Mode) -> Result<Decision<'l>, CheckError> {
        let begun = observe::begin(self.clock());
        let decision = match mode {
            Mode::Peek => match self.would_allow(request).await {
                Ok(mut decision) if !decision.allowed() => {
                    // The refusal stands, whether it counts for bans or not.
                    let _ = Box::pin(self.count_refusal(request, &mut decision)).await;
                    Ok(decision)
                }
                looked => looked,
            },
            Mode::Charge => self.check(request).await,
            Mode::Force => self.charge(request).await,
        };
        observe::answered(begun, self.clock(), decision.as_ref().err());
        decision
    }

    async fn settle_keys(&self, decision: &Decision<'_>, costs: &[Option<u64>]) -> Result<(), CheckError> {
        let begun = observe::begin(self.clock());
        let units = |limit: LimitStatus<'_>| match costs.get(limit.key_index()) {
            // Units under a concurrency limit are released, not settled: their charge stays as it is.
            Some(Some(units)) if limit.rule().algorithm() != Algorithm::Concurrency => *units,
            _ => limit.cost(),
        };
        let outcome = self.settle_each(decision, units).await.map_err(CheckError::from);
        observe::answered(begun, self.clock(), outcome.as_ref().err());
        outcome
    }

    fn hold(self: Arc<Self>, decision: Decision<'static>) -> Permit {
        RateLimiter::hold(&self, decision)
    }
}

#[async_trait]
impl<S: CounterStore + 'static, C: Timer + 'static> TimedLimiter for RateLimiter<S, C> {
    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    async fn sleep(&self, duration: Duration) {
        self.clock().sleep(duration).await;
    }
}

/// The output of a future if it is ready immediately. With a store in this process it always is.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
