//! The state that a layer and its services share: the limiter, the policies, the responses.

use std::sync::Arc;

use ratelimit_core::{CheckError, Clock, CounterStore, Decision, Limits, RateLimiter};

use crate::key::KeyBytes;
use crate::measured::BodyTypes;
use crate::{SharedPolicies, observe};

/// The state that a layer shares with all services that it has created.
pub(crate) struct Shared<S, C, A> {
    pub(crate) core: Core<S, C>,
    pub(crate) policies: SharedPolicies,
    pub(crate) answers: Arc<A>,
    pub(crate) bodies: Arc<BodyTypes>,
}

/// The limiter, and how to call it synchronously if its store is in this process.
pub(crate) struct Core<S, C> {
    pub(crate) limiter: Arc<RateLimiter<S, C>>,
    pub(crate) check_now: Option<CheckNow<S, C>>,
}

/// Checks one key synchronously, at this cost and under these limits. The request is built where it is used, so it stays
/// in registers.
pub(crate) type CheckNow<S, C> =
    for<'l> fn(&'l RateLimiter<S, C>, &[u8], u64, &'l Limits) -> Result<Decision<'l>, CheckError>;

impl<S: CounterStore, C: Clock> Core<S, C> {
    /// Checks one key synchronously.
    #[inline]
    pub(crate) fn check_now<'l>(
        &'l self,
        check_now: CheckNow<S, C>,
        key: &KeyBytes,
        cost: u64,
        limits: &'l Limits,
    ) -> Result<Decision<'l>, CheckError> {
        let begun = observe::begin(self.limiter.clock());
        let decision = check_now(&self.limiter, key.as_ref(), cost, limits);
        observe::answered(begun, self.limiter.clock(), decision.as_ref().err());
        decision
    }
}

impl<S, C> Clone for Core<S, C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), check_now: self.check_now }
    }
}
