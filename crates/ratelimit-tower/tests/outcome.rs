//! Charges that depend on the outcome of a request.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::StatusCode;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{CounterStore, RateLimiter, StoreError, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_redis::RedisStore;
use ratelimit_testbed::Testbed;
use ratelimit_tower::{Charge, KeySource, Outcome, Policies, Policy, RateLimitLayer};
use tower::ServiceExt as _;

use support::*;

fn policy(limits: &str, charge: Charge) -> Policy {
    Policy::new("all", KeySource::everybody(), limit(limits)).unwrap().charge(charge)
}

fn failed_log_ins() -> Charge {
    Charge::only_if(|outcome| outcome.status() == Some(StatusCode::UNAUTHORIZED))
}

#[tokio::test]
async fn only_configured_outcomes_are_charged() {
    let policies = Policies::new([policy("2/min", failed_log_ins())]).unwrap();
    let service = service(&layer_under(&clock(), policies));
    assert_eq!(statuses(&service, 5, &[]).await, [200; 5]);
    assert_eq!(statuses(&service, 3, &[("x-status", "401")]).await, [401, 401, 429]);
    assert_eq!(statuses(&service, 1, &[]).await, [429]);
}

#[tokio::test]
async fn failed_requests_are_refunded() {
    let charge = Charge::refund_if(|outcome| outcome.is_server_failure());
    let policies = Policies::new([policy("2/min", charge)]).unwrap();
    let service = service(&layer_under(&clock(), policies));
    assert_eq!(statuses(&service, 5, &[("x-status", "503")]).await, [503; 5]);
    for _ in 0..5 {
        let error = service.clone().oneshot(request(&[("x-status", "error")])).await.unwrap_err();
        assert_eq!(error, "the inner service failed");
    }
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
}

#[tokio::test]
async fn each_policy_has_its_own_outcome_in_one_request() {
    let named = |name: &str, limits: &str, charge| {
        Policy::new(name, KeySource::everybody(), limit(limits)).unwrap().charge(charge)
    };
    let policies = Policies::new([
        named("always", "6/min", Charge::before()),
        named("refunded", "2/min", Charge::refund_if(|outcome| outcome.is_server_failure())),
        named("failures", "1/min", failed_log_ins()),
    ]);
    let layer = layer_under(&clock(), policies.unwrap());
    let service = service(&layer);
    assert_eq!(statuses(&service, 3, &[("x-status", "500")]).await, [500; 3]); // always 3, refunded 0
    assert_eq!(statuses(&service, 1, &[("x-status", "401")]).await, [401]); // always 4, refunded 1, failures 1
    for _ in 0..5 {
        let refusal = send(&service, request(&[])).await; // charges nothing
        assert!(text(refusal).await.contains(r#"["failures"]"#));
    }
    let alone = |name, limits| Policies::new([named(name, limits, Charge::before())]).unwrap();
    layer.policies().replace(alone("always", "6/min"));
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
    layer.policies().replace(alone("refunded", "2/min"));
    assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
}

#[tokio::test]
async fn a_dropped_request_is_an_outcome() {
    for (refunds, expected) in [(true, [200, 429]), (false, [429, 429])] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let charge = Charge::refund_if({
            let seen = seen.clone();
            move |outcome| {
                seen.lock().unwrap().push(format!("{outcome:?}"));
                refunds && matches!(outcome, Outcome::Dropped)
            }
        });
        let policies = Policies::new([policy("1/min", charge)]).unwrap();
        let service = service(&layer_under(&clock(), policies));
        let mut waiting = Box::pin(service.clone().oneshot(request(&[("x-status", "never")])));
        assert!(futures_poll(&mut waiting).is_pending());
        assert_eq!(statuses(&service, 1, &[]).await, [429]);
        drop(waiting);
        assert_eq!(*seen.lock().unwrap(), ["Dropped"]);
        assert_eq!(statuses(&service, 2, &[]).await, expected);
    }
}

fn futures_poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

/// A server takes time to answer, so requests wait for the verdict here, and refunds after a drop run on a task.
#[tokio::test]
async fn outcomes_are_charged_and_refunded_on_a_server() {
    let server = Testbed::from_env().redis().await.unwrap();
    let clock = clock();
    let store = RedisStore::connect(&server.patient_url()).await.unwrap();
    let limiter = ratelimit_core::RateLimiter::without_limits(store);
    let namespace = format!("tower-{:?}", std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap());
    let limiter = limiter.with_clock(clock).with_namespace(namespace);
    let layer = RateLimitLayer::new(limiter, Policies::new([policy("2/min", failed_log_ins())]).unwrap());
    let service = service(&layer);

    assert_eq!(statuses(&service, 3, &[]).await, [200; 3]);
    assert_eq!(statuses(&service, 3, &[("x-status", "401")]).await, [401, 401, 429]);

    let charge = Charge::refund_if(|outcome| !matches!(outcome, Outcome::Answered { .. }));
    let policy = Policy::new("other", KeySource::everybody(), limit("1/min")).unwrap().charge(charge);
    layer.policies().replace(Policies::new([policy]).unwrap());
    service.clone().oneshot(request(&[("x-status", "error")])).await.unwrap_err();
    let begun = Arc::new(tokio::sync::Notify::new());
    let endless = tower::Layer::layer(
        &layer,
        tower::service_fn({
            let begun = begun.clone();
            move |_: http::Request<Body>| {
                begun.notify_one();
                std::future::pending::<Result<http::Response<Body>, String>>()
            }
        }),
    );
    let waiting = tokio::spawn(endless.oneshot(request(&[])));
    begun.notified().await;
    assert_eq!(statuses(&service, 1, &[]).await, [429]);
    waiting.abort();
    let refunded = async {
        while statuses(&service, 1, &[]).await != [200] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), refunded).await.expect("it was not given back");
    assert_eq!(statuses(&service, 1, &[]).await, [429]);
}

#[tokio::test]
async fn shadow_policies_never_refuse_and_never_charge_refusals() {
    let shadow = Policy::new("trial", KeySource::everybody(), limit("1/min")).unwrap().in_shadow();
    let real = Policy::new("real", KeySource::everybody(), limit("3/min")).unwrap();
    let layer = layer_under(&clock(), Policies::new([shadow.clone(), real]).unwrap());
    let service = service(&layer);
    let answer = send(&service, request(&[])).await;
    assert!(!only(answer.headers(), "ratelimit").contains("trial"));
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
    // It has counted exactly one: with a limit of two there is room for one more.
    let raised = Policy::new("trial", KeySource::everybody(), limit("2/min")).unwrap();
    layer.policies().replace(Policies::new([raised]).unwrap());
    assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
    // All of them together.
    layer.policies().replace(Policies::new([shadow]).unwrap().in_shadow());
    let answer = send(&service, request(&[])).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().get("ratelimit").is_none());
}

/// A store that counts how many calls are in flight at once.
#[derive(Debug, Default)]
struct Slow {
    store: MemoryStore,
    in_flight: AtomicUsize,
    most: AtomicUsize,
}

impl Slow {
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.most.fetch_max(self.in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        call.await
    }
}

impl CounterStore for Slow {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.call(self.store.claim(claims)).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.call(self.store.refund(now, refunds)).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}

/// Each of them decides and settles by itself. One after the other, they would multiply the time of a request.
#[tokio::test]
async fn policies_in_shadow_are_checked_and_settled_at_the_same_time() {
    let refunded = || Charge::refund_if(|outcome| outcome.is_server_failure());
    for charge in [failed_log_ins, refunded] {
        let policy = |name: &str| {
            let policy = Policy::new(name, KeySource::everybody(), limit("9/min")).unwrap();
            policy.charge(charge()).in_shadow()
        };
        let store = Arc::new(Slow::default());
        let limiter = RateLimiter::without_limits(store.clone()).with_clock(clock());
        let layer = RateLimitLayer::new(limiter, Policies::new(["a", "b", "c", "d"].map(policy)).unwrap());
        assert_eq!(statuses(&service(&layer), 1, &[("x-status", "500")]).await, [500]);
        assert_eq!(store.most.load(Ordering::SeqCst), 4);
    }
}
