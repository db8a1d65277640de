//! Settlements that fail are counted, and a fallback settles what it has charged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Response};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use ratelimit_core::layers::Fallback;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{CounterStore, ErrorKind, RateLimiter, StoreError, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{
    Charged, KeySource, OnFailure, Policies, Policy, RateLimitLayer, Refusal, Settle, Unsettled,
};
use tokio::task::yield_now;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::bodies::{Body, Step, body};
use crate::rig::{empty, per, policy, read, used};
use crate::support::{clock, limit};

/// A store that can fail.
#[derive(Debug, Default)]
struct Failing {
    store: MemoryStore,
    fails: AtomicBool,
    fails_to_refund: AtomicBool,
}

impl Failing {
    fn answers(&self) -> Result<(), StoreError> {
        unless(&self.fails)
    }
}

fn unless(fails: &AtomicBool) -> Result<(), StoreError> {
    let error = || StoreError::new("failing", ErrorKind::Unreachable, "as the test wants");
    if fails.load(Ordering::Relaxed) { Err(error()) } else { Ok(()) }
}

impl CounterStore for Failing {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.answers()?;
        self.store.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.answers()?;
        unless(&self.fails_to_refund)?;
        self.store.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}

fn service(
    store: impl CounterStore + 'static,
    on_failure: OnFailure,
    policies: impl IntoIterator<Item = Policy>,
    handler: impl Fn(&Request<Body>) -> Response<Body> + Clone + Send + 'static,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = String, Future: Send> + Clone {
    let refused = |_: &Refusal<'_>| Response::builder().status(429).body(empty()).unwrap();
    let limiter = RateLimiter::without_limits(store).with_clock(clock());
    let policies = Policies::new(policies).unwrap().on_failure(on_failure);
    let layer = RateLimitLayer::new(limiter, policies).answer_with(refused).with_body(Body::new);
    layer.layer(tower::service_fn(move |request| std::future::ready(Ok(handler(&request)))))
}

/// What the recorder has counted as `unsettled`.
fn unsettled(recorder: &DebuggingRecorder) -> u64 {
    let all = recorder.snapshotter().snapshot().into_vec();
    let is_it = |key: &metrics::Key| key.labels().any(|label| label.value() == "unsettled");
    let numbers = all.into_iter().filter(|(key, ..)| is_it(key.key())).map(|(_, _, _, value)| value);
    numbers.map(|value| if let DebugValue::Counter(number) = value { number } else { 0 }).sum()
}

#[tokio::test]
async fn what_cannot_be_settled_is_counted() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let store = Arc::new(Failing::default());
    let policies = [policy("a", Settle::response_bytes(per(1)).otherwise(Unsettled::Refund))];
    let bytes = service(store.clone(), OnFailure::Open, policies, |_| Response::new(body([Step::Bytes(5)])));
    let limiter = RateLimiter::without_limits(store.clone()).with_clock(clock());

    // The store fails when the body has ended.
    let response = bytes.clone().oneshot(Request::new(empty())).await.unwrap();
    store.fails.store(true, Ordering::Relaxed);
    read(response).await.unwrap();
    while unsettled(&recorder) == 0 {
        yield_now().await;
    }
    assert_eq!(unsettled(&recorder), 0, "a snapshot resets the counters");
    // A request that was not counted is not settled.
    read(bytes.oneshot(Request::new(empty())).await.unwrap()).await.unwrap();
    store.fails.store(false, Ordering::Relaxed);
    assert_eq!((used(limiter.clone(), "a").await, unsettled(&recorder)), (100, 0));

    // The handler records after the end.
    let (sender, receiver) = std::sync::mpsc::channel();
    let handler = move |request: &Request<Body>| {
        sender.send(Charged::of(request.extensions())).unwrap();
        Response::new(body([Step::Bytes(5)]))
    };
    let by_handler = service(store.clone(), OnFailure::Open, [policy("b", Settle::by_handler())], handler);
    read(by_handler.clone().oneshot(Request::new(empty())).await.unwrap()).await.unwrap();
    let charged = receiver.recv().unwrap();
    charged.add(1);
    charged.settle(2);
    assert_eq!((used(limiter.clone(), "b").await, unsettled(&recorder)), (100, 1), "once for a request");

    // The client disconnects while the handler's task goes on: nothing has failed.
    drop(by_handler.oneshot(Request::new(empty())).await.unwrap());
    receiver.recv().unwrap().add(1);
    assert_eq!((used(limiter, "b").await, unsettled(&recorder)), (200, 0));
}

#[tokio::test]
async fn a_failed_refund_of_one_policy_does_not_drop_the_charge_of_another() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let store = Arc::new(Failing::default());
    store.fails_to_refund.store(true, Ordering::Relaxed);
    let handler = |request: &Request<Body>| {
        let charged = Charged::of(request.extensions());
        charged.policy("a").settle(7);
        charged.policy("b").settle(900);
        Response::new(body([Step::Bytes(5)]))
    };
    let both = ["a", "b"].map(|name| policy(name, Settle::by_handler()));
    let service = service(store.clone(), OnFailure::Open, both, handler);
    read(service.oneshot(Request::new(empty())).await.unwrap()).await.unwrap();
    while unsettled(&recorder) == 0 {
        yield_now().await;
    }
    let limiter = RateLimiter::without_limits(store).with_clock(clock());
    assert_eq!((used(limiter.clone(), "a").await, used(limiter, "b").await), (100, 900));
}

#[tokio::test]
async fn a_header_with_the_cost_never_reaches_the_client() {
    let store = Arc::new(Failing::default());
    let cost = http::HeaderName::from_static("x-cost");
    let taking = || policy("a", Settle::take_response_header(cost.clone()));
    let plain = || Policy::new("b", KeySource::everybody(), limit("1000/h")).unwrap();
    let handler = |_: &Request<Body>| {
        let mut response = Response::new(body([Step::Bytes(5)]));
        response.headers_mut().insert("x-cost", 7.into());
        response
    };
    for (fails, policies) in [
        (false, vec![taking()]),
        (true, vec![taking()]),
        (false, vec![taking().only(|_| false)]),
        (false, vec![taking().only(|_| false), plain()]),
    ] {
        store.fails.store(fails, Ordering::Relaxed);
        let service = service(store.clone(), OnFailure::Open, policies, handler);
        let response = service.oneshot(Request::new(empty())).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.headers().get("x-cost").is_none(), "fails: {fails}");
    }
}

#[tokio::test]
async fn a_fallback_settles_what_it_has_charged() {
    let store = Arc::new(Failing::default());
    store.fails.store(true, Ordering::Relaxed);
    let second = Arc::new(MemoryStore::new());
    let both = Fallback::new(store.clone(), second.clone());
    let second = RateLimiter::without_limits(second).with_clock(clock());
    let handler = |request: &Request<Body>| {
        Charged::of(request.extensions()).settle(7);
        Response::new(body([Step::Bytes(5)]))
    };
    let service = service(both, OnFailure::Open, [policy("a", Settle::by_handler())], handler);
    let response = service.oneshot(Request::new(empty())).await.unwrap();
    store.fails.store(false, Ordering::Relaxed);
    assert_eq!(used(second.clone(), "a").await, 100);
    read(response).await.unwrap();
    let settled = async {
        while used(second.clone(), "a").await != 7 {
            yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(5), settled).await.unwrap();
    let first = RateLimiter::without_limits(store).with_clock(clock());
    assert_eq!(used(first, "a").await, 0);
}
