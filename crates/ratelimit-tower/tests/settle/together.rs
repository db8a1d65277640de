//! Many requests at once, and bodies that the layer does not know.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use ratelimit_core::RateLimiter;
use ratelimit_memory::MemoryStore;
use ratelimit_redis::RedisStore;
use ratelimit_testbed::Testbed;
use ratelimit_tower::{Charged, Policies, RateLimitLayer, Refusal, Settle, Unsettled};
use tokio::task::{JoinSet, yield_now};
use tower::{Layer as _, Service, ServiceExt as _};

use crate::bodies::{Body, Step, body};
use crate::rig::{Rig, WAYS, empty, per, policy, read, used};
use crate::support::clock;

/// A deterministic sequence that looks random.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Records 0 to 299 units per request in up to nine chunks; some clients disconnect, some handlers fail.
async fn mixed(request: Request<Body>) -> Result<Response<Body>, String> {
    let mut seed = request.uri().path().trim_start_matches('/').parse::<u64>().unwrap();
    let spent = request.extensions().get::<Arc<AtomicU64>>().unwrap().clone();
    let charged = Charged::of(request.extensions());
    let spend = move |units| {
        charged.add(units);
        spent.fetch_add(units, Ordering::Relaxed);
    };
    spend(0);
    for _ in 0..next(&mut seed) % 5 {
        yield_now().await;
    }
    let chunks = next(&mut seed) % 10;
    if chunks == 9 {
        spend(17);
        return Err("it failed".to_owned());
    }
    let steps = (0..chunks).flat_map(|_| {
        let (spend, units) = (spend.clone(), next(&mut seed) % 300);
        [crate::bodies::run(move || spend(units)), Step::Bytes(1)]
    });
    Ok(Response::new(body(steps.collect::<Vec<_>>())))
}

/// Sends requests concurrently, each of which is read up to a different point; returns what was spent.
async fn send<S>(service: S, requests: u64) -> u64
where
    S: Service<Request<Body>, Response = Response<Body>, Error = String, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let spent = Arc::new(AtomicU64::new(0));
    let mut all = JoinSet::new();
    for seed in 0..requests {
        let (service, spent) = (service.clone(), spent.clone());
        all.spawn(async move {
            let request = Request::get(format!("/{seed}")).extension(spent).body(empty()).unwrap();
            let Ok(mut response) = service.oneshot(request).await else { return };
            for _ in 0..seed % 12 {
                yield_now().await;
                if response.body_mut().frame().await.is_none() {
                    break;
                }
            }
        });
    }
    all.join_all().await;
    spent.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_count_of_concurrent_requests_is_the_sum_of_their_costs() {
    for way in WAYS {
        let rig =
            Rig::new(way, [policy("a", Settle::by_handler()), policy("b", Settle::by_handler())], mixed);
        let spent = send(rig.service.clone(), 2_000).await;
        assert!(spent > 100_000, "{spent}");
        rig.charges("a", spent).await;
        rig.charges("b", spent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_holds_on_a_server() {
    let server = Testbed::from_env().redis().await.unwrap();
    let store = Arc::new(RedisStore::connect(&server.patient_url()).await.unwrap());
    let namespace = format!("settle-{:?}", std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap());
    let limiter = || {
        let limiter = RateLimiter::without_limits(store.clone()).with_clock(clock());
        limiter.with_namespace(namespace.clone())
    };
    let policies = Policies::new([policy("a", Settle::by_handler())]).unwrap();
    let refused = |_: &Refusal<'_>| Response::builder().status(429).body(empty()).unwrap();
    let layer = RateLimitLayer::new(limiter(), policies).answer_with(refused).with_body(Body::new);
    let spent = send(layer.layer(tower::service_fn(mixed)), 500).await;
    let settled = async {
        while used(limiter(), "a").await != spent {
            yield_now().await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(60), settled).await;
    assert_eq!((used(limiter(), "a").await, settled.is_ok()), (spent, true));
}

/// A layer inside another one: what the handler records reaches both.
#[tokio::test]
async fn nested_layers_settle_independently() {
    let store = Arc::new(MemoryStore::new());
    let limiter = RateLimiter::without_limits(store).with_clock(clock());
    let refused = |_: &Refusal<'_>| Response::builder().status(429).body(empty()).unwrap();
    let layer = |policy| {
        let policies = Policies::new([policy]).unwrap();
        RateLimitLayer::in_process(limiter.clone(), policies).answer_with(refused).with_body(Body::new)
    };
    let inner = layer(policy("inner", Settle::by_handler())).layer(tower::service_fn(|request| async move {
        let request: Request<Body> = request;
        let charged = Charged::of(request.extensions());
        charged.settle(7);
        charged.policy("outer").add(1);
        Ok::<_, String>(Response::new(body([Step::Bytes(1)])))
    }));
    let service = layer(policy("outer", Settle::by_handler())).layer(inner);
    read(service.oneshot(Request::new(empty())).await.unwrap()).await.unwrap();
    assert_eq!(used(limiter.clone(), "inner").await, 7);
    assert_eq!(used(limiter, "outer").await, 8);
}

/// A body of another type cannot be observed, so the rule applies; a header and what the handler records do without.
#[tokio::test]
async fn without_a_known_type_of_body_the_rule_applies() {
    let policies = Policies::new([
        policy("bytes", Settle::response_bytes(per(1)).otherwise(Unsettled::Charge(3))),
        policy("request", Settle::request_bytes(per(1)).otherwise(Unsettled::Charge(4))),
        policy("handler", Settle::by_handler()),
        policy("header", Settle::response_header("x-cost".parse().unwrap())),
    ]);
    let clock = clock();
    let limiter = RateLimiter::without_limits(Arc::new(MemoryStore::new())).with_clock(clock);
    let layer = RateLimitLayer::in_process(limiter.clone(), policies.unwrap());
    let service = layer.layer(tower::service_fn(|request: Request<Full<Bytes>>| async move {
        Charged::of(request.extensions()).settle(7);
        let response = Response::builder().header("x-cost", "8");
        Ok::<_, Infallible>(response.body(Full::new(Bytes::from("inner"))).unwrap())
    }));
    let response = service.oneshot(Request::new(Full::from("outer"))).await.unwrap();
    for (name, units) in [("bytes", 3), ("request", 4), ("handler", 7), ("header", 8)] {
        assert_eq!(used(limiter.clone(), name).await, units, "{name}");
    }
    drop(response);
}
