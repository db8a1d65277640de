//! The layer: what is configured once for a service.

use std::fmt;
use std::sync::Arc;

use http::Response;
use ratelimit_core::{
    CheckError, Clock, CounterStore, Decision, Limits, RateLimiter, Request, SyncCounterStore, SystemClock,
};
use tower_layer::Layer;

use crate::answer::{Grpc, Problem, Refusal};
use crate::ask::{How, Tell};
use crate::key::KeyBytes;
use crate::observe;
use crate::{KeySource, Plan, Policies, Policy, RateLimit, SharedPolicies, TrustedProxies};

/// Limits the requests to a service, by a [`RateLimiter`] on any store. See the [crate's documentation](crate).
///
/// Cheap to clone; clones share everything. `A` makes the answers to requests that are refused.
///
/// # Errors of the service
/// The layer has none of its own: what it refuses is an answer. The inner service's errors go through.
///
/// # Readiness
/// The layer is ready when the inner service is. The service that was found ready is the one that gets the request, also if
/// the store has to be waited for in between.
pub struct RateLimitLayer<S, C = SystemClock, A = Problem> {
    pub(crate) shared: Arc<Shared<S, C, A>>,
}

pub(crate) struct Shared<S, C, A> {
    pub(crate) core: Arc<Core<S, C>>,
    pub(crate) policies: SharedPolicies,
    pub(crate) answers: Arc<A>,
}

/// The limiter, and how it is asked.
pub(crate) struct Core<S, C> {
    pub(crate) limiter: RateLimiter<S, C>,
    pub(crate) now: Option<CheckNow<S, C>>,
}

/// Checks on the spot, where the store can do that.
pub(crate) struct CheckNow<S, C> {
    any: CheckAny<S, C>,
    alone: CheckAlone<S, C>,
}

type CheckAny<S, C> = for<'l> fn(&'l RateLimiter<S, C>, Request<'_, 'l>) -> Result<Decision<'l>, CheckError>;

/// The same for one key, its cost and its limits. The request is made where it is used, and so is never in memory.
type CheckAlone<S, C> =
    for<'l> fn(&'l RateLimiter<S, C>, &[u8], u64, &'l Limits) -> Result<Decision<'l>, CheckError>;

impl<S: CounterStore, C: Clock> RateLimitLayer<S, C> {
    /// Counts by the client's address, as the peer's, under the limiter's own limits; [`with_policies`](Self::with_policies)
    /// for anything else.
    ///
    /// Where the store is in this process, [`in_process`](Self::in_process) does the same with less work.
    pub fn new(limiter: RateLimiter<S, C>) -> Self {
        Self::of(limiter, None)
    }

    /// As [`new`](Self::new) for a store in this process: it is asked on the spot, which allocates nothing.
    pub fn in_process(limiter: RateLimiter<S, C>) -> Self
    where
        S: SyncCounterStore,
    {
        let now = CheckNow {
            any: |limiter, request| limiter.check_now(request),
            alone: |limiter, key, cost, limits| {
                limiter.check_now(Request::new(key).cost(cost).limits(limits))
            },
        };
        Self::of(limiter, Some(now))
    }

    fn of(limiter: RateLimiter<S, C>, now: Option<CheckNow<S, C>>) -> Self {
        let by_address = KeySource::client_address(TrustedProxies::none());
        let plan = Plan::known("default", limiter.limits().clone());
        let policies = Policies::known(vec![Policy::known("default", by_address, plan)]);
        let core = Arc::new(Core { limiter, now });
        Self { shared: Arc::new(Shared { core, policies: policies.into(), answers: Arc::new(Problem) }) }
    }
}

impl<S, C, A> RateLimitLayer<S, C, A> {
    /// With these policies instead. Give it a [`SharedPolicies`] to exchange them while requests come in.
    #[must_use]
    pub fn with_policies(self, policies: impl Into<SharedPolicies>) -> Self {
        let Shared { core, answers, .. } = &*self.shared;
        let (core, answers) = (core.clone(), answers.clone());
        Self { shared: Arc::new(Shared { core, policies: policies.into(), answers }) }
    }

    /// The policies; they can be exchanged.
    pub fn policies(&self) -> &SharedPolicies {
        &self.shared.policies
    }

    /// Answers with what a closure makes of a refusal.
    ///
    /// ```
    /// use axum::body::Body;
    /// use http::Response;
    /// use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
    /// use ratelimit_tower::RateLimitLayer;
    ///
    /// let limiter = RateLimiter::new(MemoryStore::new(), "100/min".parse::<Limit>()?);
    /// let layer = RateLimitLayer::in_process(limiter).answer_with(|refusal| {
    ///     let mut response = Response::new(Body::from("slow down"));
    ///     *response.status_mut() = refusal.reason().status();
    ///     response // the layer adds Retry-After and the other fields
    /// });
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn answer_with<B, F>(self, answers: F) -> RateLimitLayer<S, C, F>
    where
        F: Fn(&Refusal<'_>) -> Response<B> + Send + Sync,
    {
        self.answering(answers)
    }

    /// Answers every request as [`Grpc`] does: for tonic. (The default does so where the request says that it is of gRPC,
    /// but needs a body that can hold text.)
    #[must_use]
    pub fn grpc(self) -> RateLimitLayer<S, C, Grpc> {
        self.answering(Grpc)
    }

    fn answering<B>(self, answers: B) -> RateLimitLayer<S, C, B> {
        let Shared { core, policies, .. } = &*self.shared;
        let (core, policies) = (core.clone(), policies.clone());
        RateLimitLayer { shared: Arc::new(Shared { core, policies, answers: Arc::new(answers) }) }
    }
}

impl<Inner, S, C, A> Layer<Inner> for RateLimitLayer<S, C, A> {
    type Service = RateLimit<Inner, S, C, A>;

    fn layer(&self, inner: Inner) -> Self::Service {
        RateLimit::new(inner, self.shared.clone())
    }
}

impl<S, C, A> Clone for RateLimitLayer<S, C, A> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<S: fmt::Debug, C, A> fmt::Debug for RateLimitLayer<S, C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policies", &self.shared.policies.current())
            .finish_non_exhaustive()
    }
}

impl<S: CounterStore, C: Clock> Core<S, C> {
    /// Whether the store's state is in this process: whatever it is asked is answered at once.
    pub(crate) fn in_process(&self) -> bool {
        self.now.is_some()
    }

    /// Checks on the spot.
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
        observe::asked(begun, self.limiter.clock(), decision.as_ref().err());
        decision
    }
}

impl<S: CounterStore, C: Clock> Tell for Core<S, C> {
    async fn ask<'l>(&'l self, request: &Request<'_, 'l>, how: How) -> Result<Decision<'l>, CheckError> {
        if how == How::Take
            && let Some(now) = &self.now
        {
            let begun = observe::begin(self.limiter.clock());
            let decision = (now.any)(&self.limiter, request.clone());
            observe::asked(begun, self.limiter.clock(), decision.as_ref().err());
            return decision;
        }
        self.limiter.ask(request, how).await
    }

    async fn give_back(&self, decision: &Decision<'_>, keys: &[usize]) -> Result<(), CheckError> {
        self.limiter.give_back(decision, keys).await
    }
}
