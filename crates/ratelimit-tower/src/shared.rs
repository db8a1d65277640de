//! The state that a layer and its services share: the limiter, the policies, the responses.

use std::ops::Deref;
use std::sync::Arc;

use ratelimit_core::{CheckError, Clock, CounterStore, Decision, Limits, Mode, Permit, RateLimiter, Request};

use crate::key::KeyBytes;
use crate::limiter::Limiter;
use crate::measured::BodyTypes;
use crate::{SharedPolicies, observe};

/// The state that a layer shares with all services that it has created.
pub(crate) struct Shared<S, C, A> {
    pub(crate) core: Arc<Core<S, C>>,
    pub(crate) policies: SharedPolicies,
    pub(crate) answers: Arc<A>,
    pub(crate) bodies: Arc<BodyTypes>,
}

/// The limiter, and how to call it.
pub(crate) struct Core<S, C> {
    pub(crate) limiter: RateLimiter<S, C>,
    pub(crate) now: Option<CheckNow<S, C>>,
}

/// Synchronous checks, if the store supports them.
pub(crate) struct CheckNow<S, C> {
    pub(crate) any: CheckAny<S, C>,
    pub(crate) alone: CheckAlone<S, C>,
}

type CheckAny<S, C> = for<'l> fn(&'l RateLimiter<S, C>, Request<'_, 'l>) -> Result<Decision<'l>, CheckError>;

/// Like [`CheckAny`], for one key, its cost and its limits. The request is built where it is used, so it stays in
/// registers.
type CheckAlone<S, C> =
    for<'l> fn(&'l RateLimiter<S, C>, &[u8], u64, &'l Limits) -> Result<Decision<'l>, CheckError>;

impl<S: CounterStore + 'static, C: Clock + 'static> Core<S, C> {
    /// Holds what this decision has taken under concurrency limits.
    pub(crate) fn hold(self: &Arc<Self>, decision: Decision<'static>) -> Permit {
        Permit::of(CoreRef(self.clone()), decision)
    }
}

/// The limiter of a core.
struct CoreRef<S, C>(Arc<Core<S, C>>);

impl<S, C> Deref for CoreRef<S, C> {
    type Target = RateLimiter<S, C>;

    fn deref(&self) -> &Self::Target {
        &self.0.limiter
    }
}

impl<S: CounterStore, C: Clock> Core<S, C> {
    /// Whether the store's state is in this process, so that it always answers immediately.
    pub(crate) fn in_process(&self) -> bool {
        self.now.is_some()
    }

    /// Checks synchronously.
    #[inline]
    pub(crate) fn take_alone<'l>(
        &'l self,
        now: &CheckNow<S, C>,
        key: &KeyBytes,
        cost: u64,
        limits: &'l Limits,
    ) -> Result<Decision<'l>, CheckError> {
        let begun = observe::begin(self.limiter.clock());
        let decision = (now.alone)(&self.limiter, key.as_ref(), cost, limits);
        observe::answered(begun, self.limiter.clock(), decision.as_ref().err());
        decision
    }
}

impl<S: CounterStore, C: Clock> Limiter for Core<S, C> {
    async fn decide<'l>(&'l self, request: &Request<'_, 'l>, mode: Mode) -> Result<Decision<'l>, CheckError> {
        if mode == Mode::Charge
            && let Some(now) = &self.now
        {
            let begun = observe::begin(self.limiter.clock());
            let decision = (now.any)(&self.limiter, request.clone());
            observe::answered(begun, self.limiter.clock(), decision.as_ref().err());
            return decision;
        }
        self.limiter.decide(request, mode).await
    }

    async fn settle_keys(&self, decision: &Decision<'_>, costs: &[Option<u64>]) -> Result<(), CheckError> {
        self.limiter.settle_keys(decision, costs).await
    }
}
