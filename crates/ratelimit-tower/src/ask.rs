//! Calls a limiter: of any type, as a trait object, or with a store that answers synchronously.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ratelimit_core::{CheckError, Clock, CounterStore, Decision, LimitStatus, RateLimiter, Request};

use crate::observe;

/// How to check a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Return whether it fits; charge nothing.
    Look,
    /// Charge it if it fits.
    Take,
    /// Charge it whether it fits or not.
    Force,
}

/// A limiter that can check and settle requests.
pub(crate) trait Tell: Send + Sync {
    fn ask<'l>(
        &'l self,
        request: &Request<'_, 'l>,
        how: How,
    ) -> impl Future<Output = Result<Decision<'l>, CheckError>> + Send;

    /// Refunds what the keys at these indices were charged.
    fn give_back(
        &self,
        decision: &Decision<'_>,
        keys: &[usize],
    ) -> impl Future<Output = Result<(), CheckError>> + Send;
}

impl<S: CounterStore, C: Clock> Tell for RateLimiter<S, C> {
    async fn ask<'l>(&'l self, request: &Request<'_, 'l>, how: How) -> Result<Decision<'l>, CheckError> {
        let begun = observe::begin(self.clock());
        let decision = match how {
            How::Look => self.would_allow(request).await,
            How::Take => self.check(request).await,
            How::Force => self.charge(request).await,
        };
        observe::asked(begun, self.clock(), decision.as_ref().err());
        decision
    }

    async fn give_back(&self, decision: &Decision<'_>, keys: &[usize]) -> Result<(), CheckError> {
        let begun = observe::begin(self.clock());
        let units = |limit: LimitStatus<'_>| if keys.contains(&limit.key_index()) { 0 } else { limit.cost() };
        let outcome = self.settle_each(decision, units).await.map_err(CheckError::from);
        observe::asked(begun, self.clock(), outcome.as_ref().err());
        outcome
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The same as a trait object, for fallbacks.
pub(crate) trait DynTell: Send + Sync {
    fn dyn_ask<'a, 'k: 'a, 'l: 'a>(
        &'l self,
        request: &'a Request<'k, 'l>,
        how: How,
    ) -> BoxFuture<'a, Result<Decision<'l>, CheckError>>;

    fn dyn_give_back<'a, 'd: 'a>(
        &'a self,
        decision: &'a Decision<'d>,
        keys: &'a [usize],
    ) -> BoxFuture<'a, Result<(), CheckError>>;
}

impl<T: Tell> DynTell for T {
    fn dyn_ask<'a, 'k: 'a, 'l: 'a>(
        &'l self,
        request: &'a Request<'k, 'l>,
        how: How,
    ) -> BoxFuture<'a, Result<Decision<'l>, CheckError>> {
        Box::pin(self.ask(request, how))
    }

    fn dyn_give_back<'a, 'd: 'a>(
        &'a self,
        decision: &'a Decision<'d>,
        keys: &'a [usize],
    ) -> BoxFuture<'a, Result<(), CheckError>> {
        Box::pin(self.give_back(decision, keys))
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
