//! Calls a limiter: of any type, as a trait object, or with a store that answers synchronously.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use std::sync::Arc;

use ratelimit_core::{
    Algorithm, CheckError, Clock, CounterStore, Decision, LimitStatus, Mode, Permit, RateLimiter, Request,
};

use crate::observe;

/// A limiter that can check and settle requests.
pub(crate) trait Limiter: Send + Sync {
    /// Checks a request. [`Mode::Peek`] charges nothing, but counts a refusal for bans.
    fn decide<'l>(
        &'l self,
        request: &Request<'_, 'l>,
        mode: Mode,
    ) -> impl Future<Output = Result<Decision<'l>, CheckError>> + Send;

    /// Settles a decision at these true costs of its keys; `None` leaves the charge of a key as it is.
    fn settle_keys(
        &self,
        decision: &Decision<'_>,
        costs: &[Option<u64>],
    ) -> impl Future<Output = Result<(), CheckError>> + Send;
}

impl<S: CounterStore, C: Clock> Limiter for RateLimiter<S, C> {
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
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`Limiter`] as a trait object, for fallbacks.
pub(crate) trait DynLimiter: Send + Sync {
    fn dyn_decide<'a, 'k: 'a, 'l: 'a>(
        &'l self,
        request: &'a Request<'k, 'l>,
        mode: Mode,
    ) -> BoxFuture<'a, Result<Decision<'l>, CheckError>>;

    fn dyn_settle_keys<'a, 'd: 'a>(
        &'a self,
        decision: &'a Decision<'d>,
        costs: &'a [Option<u64>],
    ) -> BoxFuture<'a, Result<(), CheckError>>;

    fn dyn_hold(self: Arc<Self>, decision: Decision<'static>) -> Permit;
}

impl<S: CounterStore + 'static, C: Clock + 'static> DynLimiter for RateLimiter<S, C> {
    fn dyn_decide<'a, 'k: 'a, 'l: 'a>(
        &'l self,
        request: &'a Request<'k, 'l>,
        mode: Mode,
    ) -> BoxFuture<'a, Result<Decision<'l>, CheckError>> {
        Box::pin(self.decide(request, mode))
    }

    fn dyn_settle_keys<'a, 'd: 'a>(
        &'a self,
        decision: &'a Decision<'d>,
        costs: &'a [Option<u64>],
    ) -> BoxFuture<'a, Result<(), CheckError>> {
        Box::pin(self.settle_keys(decision, costs))
    }

    fn dyn_hold(self: Arc<Self>, decision: Decision<'static>) -> Permit {
        self.hold(decision)
    }
}

/// The output of a future if it is ready immediately. With a store in this process it always is.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let future = std::pin::pin!(future);
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
