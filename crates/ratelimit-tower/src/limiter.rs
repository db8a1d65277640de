//! A limiter, and what requests need of it whatever its store and its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use ratelimit_core::clock::Timer;
use ratelimit_core::store::Mode;
use ratelimit_core::{
    Algorithm, CheckError, Clock, CounterStore, Decision, LimitStatus, Permit, RateLimiter, Request,
    Timestamp,
};

use crate::observe;

/// A limiter that can check and settle requests, and on whose clock they can wait.
#[async_trait]
pub(crate) trait Limiter: Send + Sync {
    /// Checks a request. [`Mode::Peek`] charges nothing, but counts a refusal for bans.
    async fn decide<'l>(&'l self, request: &Request<'_, 'l>, mode: Mode) -> Result<Decision<'l>, CheckError>;

    /// [`decide`](Self::decide) for independent requests, in one call to the store if they are charged. One result for each.
    async fn decide_each<'l>(
        &'l self,
        requests: &[Request<'_, 'l>],
        mode: Mode,
    ) -> Vec<Result<Decision<'l>, CheckError>>;

    /// Checks and charges a request without waiting, if the store's state is in this process.
    fn check_at_once<'l>(&'l self, request: &Request<'_, 'l>) -> Option<Result<Decision<'l>, CheckError>>;

    /// Settles a decision at these true costs of its keys; `None` leaves the charge of a key as it is.
    async fn settle_keys(&self, decision: &Decision<'_>, costs: &[Option<u64>]) -> Result<(), CheckError>;

    /// Holds what a decision of this limiter has taken under concurrency limits.
    fn hold(&self, decision: Decision<'static>) -> Permit;

    /// Whether the store's state is in this process, so that it always answers immediately.
    fn is_in_process(&self) -> bool;

    /// Tells limiters apart.
    fn id(&self) -> *const ();

    fn now(&self) -> Timestamp;

    async fn sleep(&self, duration: Duration);
}

/// A limiter, and how to call it synchronously if its store is in this process.
pub(crate) struct Core<S, C> {
    pub(crate) limiter: Arc<RateLimiter<S, C>>,
    pub(crate) check_now: Option<CheckNow<S, C>>,
    /// How many services count with this limiter, as far as is known.
    users: AtomicUsize,
}

/// [`RateLimiter::check_now`].
pub(crate) type CheckNow<S, C> =
    for<'l> fn(&'l RateLimiter<S, C>, Request<'_, 'l>) -> Result<Decision<'l>, CheckError>;

impl<S, C> Core<S, C> {
    pub(crate) fn new(limiter: Arc<RateLimiter<S, C>>, check_now: Option<CheckNow<S, C>>) -> Self {
        // Whoever shares the limiter may make other layers of it.
        let others = Arc::strong_count(&limiter) - 1 + Arc::weak_count(&limiter);
        Self { limiter, check_now, users: AtomicUsize::new(others) }
    }

    /// Records that a service is made, which counts with this limiter.
    pub(crate) fn is_used(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a request can meet this limiter more than once. If not, it needs no mark, which takes an allocation.
    #[inline]
    pub(crate) fn can_repeat(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 1
    }
}

impl<S: CounterStore, C: Clock> Core<S, C> {
    /// Checks a request synchronously.
    #[inline]
    pub(crate) fn check_now<'l>(
        &'l self,
        check_now: CheckNow<S, C>,
        request: Request<'_, 'l>,
    ) -> Result<Decision<'l>, CheckError> {
        let begun = observe::begin(self.limiter.clock());
        let decision = check_now(&self.limiter, request);
        self.answered(begun, decision.as_ref().err());
        decision
    }

    fn answered(&self, begun: Option<Timestamp>, error: Option<&CheckError>) {
        observe::answered(begun, self.limiter.clock(), error);
    }
}

#[async_trait]
impl<S: CounterStore + 'static, C: Timer + 'static> Limiter for Core<S, C> {
    async fn decide<'l>(&'l self, request: &Request<'_, 'l>, mode: Mode) -> Result<Decision<'l>, CheckError> {
        let limiter = &*self.limiter;
        let begun = observe::begin(limiter.clock());
        let decision = match mode {
            Mode::Peek => match limiter.would_allow(request).await {
                Ok(mut decision) if !decision.allowed() => {
                    // The refusal stands, whether it counts for bans or not.
                    let _ = Box::pin(limiter.count_refusal(request, &mut decision)).await;
                    Ok(decision)
                }
                looked => looked,
            },
            Mode::Charge => limiter.check(request).await,
            Mode::Force => limiter.charge(request).await,
        };
        self.answered(begun, decision.as_ref().err());
        decision
    }

    async fn decide_each<'l>(
        &'l self,
        requests: &[Request<'_, 'l>],
        mode: Mode,
    ) -> Vec<Result<Decision<'l>, CheckError>> {
        if mode == Mode::Charge && requests.len() > 1 {
            let begun = observe::begin(self.limiter.clock());
            let decided = self.limiter.check_many(requests.iter().cloned()).await;
            self.answered(begun, decided.iter().find_map(|decided| decided.as_ref().err()));
            return decided;
        }
        join_all(requests.iter().map(|request| self.decide(request, mode))).await
    }

    fn check_at_once<'l>(&'l self, request: &Request<'_, 'l>) -> Option<Result<Decision<'l>, CheckError>> {
        self.check_now.map(|check_now| self.check_now(check_now, request.clone()))
    }

    async fn settle_keys(&self, decision: &Decision<'_>, costs: &[Option<u64>]) -> Result<(), CheckError> {
        let begun = observe::begin(self.limiter.clock());
        let units = |limit: LimitStatus<'_>| match costs.get(limit.key_index()) {
            // A true cost of zero may be known from the response's head, while the body is still sent: that is no reason to
            // release units under a concurrency limit. Their permit does so at the end.
            Some(units) if limit.rule().algorithm() != Algorithm::Concurrency => *units,
            _ => None,
        };
        let outcome = self.limiter.settle_each(decision, units).await.map_err(CheckError::from);
        self.answered(begun, outcome.as_ref().err());
        outcome
    }

    fn hold(&self, decision: Decision<'static>) -> Permit {
        self.limiter.hold(decision)
    }

    fn is_in_process(&self) -> bool {
        self.check_now.is_some()
    }

    fn id(&self) -> *const () {
        Arc::as_ptr(&self.limiter).cast()
    }

    fn now(&self) -> Timestamp {
        self.limiter.clock().now()
    }

    async fn sleep(&self, duration: Duration) {
        self.limiter.clock().sleep(duration).await;
    }
}
