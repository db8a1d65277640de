//! A service behind the layer on a store in memory, called in both ways; and how to read what was charged.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{CounterStore, ManualClock, RateLimiter, StoreError, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{Cost, KeySource, Policies, Policy, RateLimitLayer, Settle};
use tokio::task::yield_now;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _};

use crate::bodies::Body;
use crate::support::{clock, limit, only, request, send, service};

/// How the layer asks its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    InProcess,
    /// With futures that do not complete immediately.
    Later,
}

pub(crate) const WAYS: [Way; 2] = [Way::InProcess, Way::Later];

const LIMIT: &str = "1000000000/day fixed";

/// A store that takes its time.
#[derive(Debug)]
struct Later(Arc<MemoryStore>);

impl CounterStore for Later {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        yield_now().await;
        let answer = self.0.claim(claims).await;
        yield_now().await;
        answer
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        yield_now().await;
        self.0.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

/// A service behind the layer.
pub(crate) struct Rig {
    pub(crate) clock: ManualClock,
    store: Arc<MemoryStore>,
    pub(crate) service: BoxCloneService<Request<Body>, Response<Body>, String>,
}

/// A policy for everybody that charges 100 units and settles.
pub(crate) fn policy(name: &str, settle: Settle) -> Policy {
    let policy = Policy::new(name, KeySource::everybody(), limit(LIMIT)).unwrap();
    policy.cost(Cost::units(100)).settle(settle)
}

pub(crate) fn per(unit: u64) -> NonZeroU64 {
    NonZeroU64::new(unit).unwrap()
}

impl Rig {
    pub(crate) fn new<F>(
        way: Way,
        policies: impl IntoIterator<Item = Policy>,
        handler: impl Fn(Request<Body>) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, String>> + Send + 'static,
    {
        Self::under(way, Policies::new(policies).unwrap(), handler)
    }

    pub(crate) fn under<F>(
        way: Way,
        policies: Policies,
        handler: impl Fn(Request<Body>) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, String>> + Send + 'static,
    {
        let (clock, store) = (clock(), Arc::new(MemoryStore::new()));
        let inner = tower::service_fn(handler);
        let refused =
            |_: &ratelimit_tower::Refusal<'_>| Response::builder().status(429).body(empty()).unwrap();
        let service = match way {
            Way::InProcess => {
                let limiter = RateLimiter::without_limits(store.clone()).with_clock(clock.clone());
                let layer = RateLimitLayer::in_process(limiter, policies);
                BoxCloneService::new(layer.answer_with(refused).with_body(Body::new).layer(inner))
            }
            Way::Later => {
                let limiter = RateLimiter::without_limits(Later(store.clone())).with_clock(clock.clone());
                let layer = RateLimitLayer::new(limiter, policies);
                BoxCloneService::new(layer.answer_with(refused).with_body(Body::new).layer(inner))
            }
        };
        Self { clock, store, service }
    }

    pub(crate) fn call(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, String>> + Send + use<> {
        self.service.clone().oneshot(request)
    }

    /// The response to a request without a body.
    pub(crate) async fn get(&self) -> Response<Body> {
        self.call(Request::new(empty())).await.unwrap()
    }

    /// What a policy has charged.
    pub(crate) async fn used(&self, name: &str) -> u64 {
        used(RateLimiter::without_limits(self.store.clone()).with_clock(self.clock.clone()), name).await
    }

    /// Waits until a policy has charged this much, and checks that it stays so.
    #[track_caller]
    pub(crate) fn charges(&self, name: &'static str, units: u64) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let reached = async {
                while self.used(name).await != units {
                    yield_now().await;
                }
                for _ in 0..50 {
                    yield_now().await;
                }
            };
            let reached = tokio::time::timeout(Duration::from_secs(5), reached).await;
            assert_eq!((self.used(name).await, reached.is_ok()), (units, true), "{name} at {caller}");
        }
    }
}

/// What a policy has charged, from the fields of a response to a request that costs nothing.
pub(crate) async fn used<S: CounterStore + 'static>(limiter: RateLimiter<S, ManualClock>, name: &str) -> u64 {
    let policy = Policy::new(name, KeySource::everybody(), limit(LIMIT)).unwrap().cost(Cost::units(0));
    let layer = RateLimitLayer::new(limiter, Policies::new([policy]).unwrap());
    let response = send(&service(&layer), request(&[])).await;
    let field = only(response.headers(), "ratelimit");
    let remaining = field.split(";r=").nth(1).unwrap().split(';').next().unwrap();
    limit(LIMIT).quota() - remaining.parse::<u64>().unwrap()
}

pub(crate) fn empty() -> Body {
    Body::new(Empty::new().map_err(|never| match never {}))
}

pub(crate) async fn read(response: Response<Body>) -> Result<usize, String> {
    Ok(response.into_body().collect().await?.to_bytes().len())
}
