//! The layer: the configuration for a service.

use std::fmt;
use std::sync::Arc;

use http::Response;
use http_body::Body;
use ratelimit_core::clock::Timer;
use ratelimit_core::{CounterStore, SyncCounterStore, SystemClock};
use tower_layer::Layer;

use crate::answer::{Grpc, Problem, Refusal};
use crate::limiter::{CheckNow, Core};
use crate::measured::{BodyTypes, MeasuredBody};
use crate::shared::Shared;
use crate::{IntoLimiter, RateLimit, SharedPolicies};

/// Limits the requests to a service, with counts in any store. See the [crate's documentation](crate).
///
/// Cheap to clone; clones share everything. `A` builds the responses to refused requests.
///
/// If layers with one limiter, such as clones, are around each other, a policy counts a request once: in the outermost
/// layer in which it applies.
///
/// # Errors of the service
/// The layer returns no errors of its own: a refusal is a response. The inner service's errors are passed on.
///
/// # Readiness
/// The layer is ready when the inner service is. The service that was ready is the one that gets the request, even if
/// the layer has to wait for the store in between.
pub struct RateLimitLayer<S, C = SystemClock, A = Problem> {
    pub(crate) shared: Arc<Shared<S, C, A>>,
}

impl<S: CounterStore, C: Timer> RateLimitLayer<S, C> {
    /// Counts in this store, under these policies. A [`Limit`](ratelimit_core::Limit) or
    /// [`Limits`](ratelimit_core::Limits) in place of policies apply to each peer's address (IPv6: to each /64 network).
    /// Layers on one store with equal limits, or with policies of one name, count together, in this service and in others:
    /// give each service a namespace.
    /// Pass a [`SharedPolicies`] to replace the policies while the service runs.
    ///
    /// For a namespace or another clock, pass a [`RateLimiter::without_limits`](ratelimit_core::RateLimiter::without_limits)
    /// in place of the store; to use it elsewhere as well, in an `Arc`. If it has limits, they do not apply.
    ///
    /// If the store is in this process, [`in_process`](Self::in_process) does the same with less work.
    pub fn new(store: impl IntoLimiter<S, C>, policies: impl Into<SharedPolicies>) -> Self {
        Self::of(store, None, policies.into())
    }

    /// Like [`new`](Self::new), for a store in this process: calls it synchronously, without allocating.
    pub fn in_process(store: impl IntoLimiter<S, C>, policies: impl Into<SharedPolicies>) -> Self
    where
        S: SyncCounterStore,
    {
        let check_now: CheckNow<S, C> = |limiter, request| limiter.check_now(request);
        Self::of(store, Some(check_now), policies.into())
    }

    fn of(
        store: impl IntoLimiter<S, C>,
        check_now: Option<CheckNow<S, C>>,
        policies: SharedPolicies,
    ) -> Self {
        let core = Arc::new(Core::new(store.into_limiter(), check_now));
        let bodies = Arc::new(BodyTypes::of_frameworks());
        Self { shared: Arc::new(Shared { core, policies, answers: Arc::new(Problem), bodies }) }
    }
}

impl<S, C, A> RateLimitLayer<S, C, A> {
    /// The policies, which you can replace.
    pub fn policies(&self) -> &SharedPolicies {
        &self.shared.policies
    }

    /// Answers with the response that a closure builds from a refusal.
    ///
    /// ```
    /// use axum::body::Body;
    /// use http::Response;
    /// use ratelimit_memory::{Limit, MemoryStore};
    /// use ratelimit_tower::RateLimitLayer;
    ///
    /// let limit: Limit = "100/min".parse()?;
    /// let layer = RateLimitLayer::in_process(MemoryStore::new(), limit).answer_with(|refusal| {
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
        self.with(Arc::new(answers), self.shared.bodies.clone())
    }

    /// Answers every refused request like [`Grpc`]: for tonic. (The default does so for gRPC requests, but needs a body
    /// that can contain text.)
    #[must_use]
    pub fn grpc(self) -> RateLimitLayer<S, C, Grpc> {
        self.with(Arc::new(Grpc), self.shared.bodies.clone())
    }

    /// Lets policies [settle](crate::Settle) by request or response bodies of type `B`, and hold units of concurrency
    /// limits until such a response body ends.
    ///
    /// `new` wraps a [`MeasuredBody`], which the layer observes, into a `B`; so `B` has to be a type that can hold any
    /// body. With the features `axum` and `tonic`, the layer knows the bodies of these frameworks already. Call this for
    /// each other type. The services keep their types, and no body is replaced unless the layer has to observe it.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use bytes::Bytes;
    /// use http_body_util::combinators::UnsyncBoxBody;
    /// use ratelimit_memory::{Limit, MemoryStore};
    /// use ratelimit_tower::RateLimitLayer;
    ///
    /// let limit: Limit = "100/min".parse()?;
    /// let layer = RateLimitLayer::in_process(MemoryStore::new(), limit)
    ///     .with_body(UnsyncBoxBody::<Bytes, Infallible>::new);
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_body<B>(self, new: impl Fn(MeasuredBody<B>) -> B + Send + Sync + 'static) -> Self
    where
        B: Body + 'static,
    {
        let mut bodies = BodyTypes::clone(&self.shared.bodies);
        bodies.add(new);
        self.with(self.shared.answers.clone(), Arc::new(bodies))
    }

    /// The same with these answers and these types of bodies.
    fn with<B>(&self, answers: Arc<B>, bodies: Arc<BodyTypes>) -> RateLimitLayer<S, C, B> {
        let (core, policies) = (self.shared.core.clone(), self.shared.policies.clone());
        RateLimitLayer { shared: Arc::new(Shared { core, policies, answers, bodies }) }
    }
}

impl<Inner, S, C, A> Layer<Inner> for RateLimitLayer<S, C, A> {
    type Service = RateLimit<Inner, S, C, A>;

    fn layer(&self, inner: Inner) -> Self::Service {
        self.shared.core.is_used();
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
