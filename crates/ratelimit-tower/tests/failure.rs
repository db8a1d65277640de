//! Behaviour if the store does not answer: real stores whose server is gone, or that are full.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::layers::Fallback;
use ratelimit_core::{CounterStore, ManualClock, RateLimiter};
use ratelimit_memory::{MemoryConfig, MemoryStore, WhenFull};
use ratelimit_redis::RedisStore;
use ratelimit_testbed::{Settings, Testbed};
use ratelimit_tower::{
    Charge, KeySource, Missing, OnFailure, Policies, Policy, RateLimitLayer, SharedPolicies, TrustedProxies,
};

use support::*;

/// A store on a server that has answered and then stopped.
async fn store_on_a_dead_server() -> RedisStore {
    // A server of its own, because the test stops it.
    let settings = Settings { addresses: BTreeMap::new(), ..Settings::from_env() };
    let server = Testbed::new(settings).redis().await.unwrap();
    let store = RedisStore::connect(&server.patient_url()).await.unwrap();
    let layer = layer_on(store.clone(), policies("5/min"));
    assert_eq!(statuses(&service(&layer), 1, &[]).await, [200]);
    server.kill().await.unwrap();
    store
}

fn layer_on<S: CounterStore>(
    store: S,
    policies: impl Into<SharedPolicies>,
) -> RateLimitLayer<S, ManualClock> {
    RateLimitLayer::new(RateLimiter::without_limits(store).with_clock(clock()), policies)
}

fn policies(limits: &str) -> Policies {
    Policies::new([Policy::new("all", KeySource::everybody(), limit(limits)).unwrap()]).unwrap()
}

#[tokio::test]
async fn store_failures_are_handled_as_configured() {
    let layer = layer_on(store_on_a_dead_server().await, policies("5/min"));
    let service = service(&layer);

    // By default 503, with `Retry-After`.
    let answer = send(&service, request(&[])).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(only(answer.headers(), "retry-after"), "1");
    assert_eq!(only(answer.headers(), "cache-control"), "no-store");
    let problem: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(problem["violated-policies"], serde_json::json!(["all"]));

    let policies_with = |on_failure| policies("2/min").on_failure(on_failure);
    layer.policies().replace(policies_with(OnFailure::closed(Duration::from_millis(7001))));
    assert_eq!(only(send(&service, request(&[])).await.headers(), "retry-after"), "8");

    layer.policies().replace(policies_with(OnFailure::Open));
    let answer = send(&service, request(&[])).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().get("ratelimit").is_none());

    // In shadow, no request is refused.
    layer.policies().replace(policies("1/min").in_shadow());
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 200]);
}

#[tokio::test]
async fn outcomes_are_settled_with_the_store_that_decided() {
    let store = Fallback::new(store_on_a_dead_server().await, MemoryStore::new());
    let layer = layer_on(store, policies("2/min"));
    let service = service(&layer);
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
    let failures = |name: &str, charge: Charge| {
        let policy = Policy::new(name, KeySource::everybody(), limit("1/min")).unwrap().charge(charge);
        Policies::new([policy]).unwrap()
    };
    layer.policies().replace(failures("charged", Charge::only_if(|outcome| outcome.is_server_failure())));
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 200]);
    assert_eq!(statuses(&service, 2, &[("x-status", "500")]).await, [500, 429]);
    layer.policies().replace(failures("refunded", Charge::refund_if(|outcome| outcome.is_server_failure())));
    assert_eq!(statuses(&service, 3, &[("x-status", "500")]).await, [500, 500, 500]);
    assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
}

#[tokio::test]
async fn a_store_in_process_that_is_full_fails_like_any_other() {
    let config = MemoryConfig::default().max_keys(1).when_full(WhenFull::Refuse);
    let store = Arc::new(MemoryStore::with_config(config));
    let limiter_of_one = RateLimiter::without_limits(store.clone()).with_clock(clock());
    let by_address = || {
        let source = KeySource::client_address(TrustedProxies::none());
        let policy = Policy::new("address", source, limit("5/min")).unwrap().when_missing(Missing::Refuse);
        Policies::new([policy]).unwrap()
    };
    let layer = RateLimitLayer::in_process(limiter_of_one, by_address());
    let from = |last: u8| {
        let mut request = request(&[]);
        request.extensions_mut().insert(ratelimit_tower::PeerAddress([192, 0, 2, last].into()));
        request
    };
    let mut answers = Vec::new();
    let alone = service(&layer);
    for client in 0..200 {
        answers.push(send(&alone, from(client)).await.status().as_u16());
    }
    assert!(answers.contains(&200) && answers.contains(&503), "{answers:?}");
    let refused = u8::try_from(answers.iter().position(|status| *status == 503).unwrap()).unwrap();
    layer.policies().replace(by_address().on_failure(OnFailure::Open));
    assert_eq!(send(&alone, from(refused)).await.status(), 200);
    let with_fallback = service(&layer_on(Fallback::new(store, MemoryStore::new()), by_address()));
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(send(&with_fallback, from(refused)).await.status().as_u16());
    }
    assert_eq!(answers, [200, 200, 200, 200, 200, 429]);
}
