//! The layer several times around one request: each policy charges it once.

mod support;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use http::Request;
use http_body_util::Full;
use ratelimit_tower::{Charge, Charged, KeySource, Policies, Policy, RateLimitLayer, Settle};
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

use support::*;

async fn get_all(app: &Router, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        let request = Request::builder().uri(*path).body(axum::body::Body::empty()).unwrap();
        statuses.push(app.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn a_layer_that_is_added_twice_charges_once() {
    let route = || Router::new().route("/", get(|| async { "hello" }));
    let l = || layer(&clock(), "10/min fixed");
    let twice = |l: RateLimitLayer<_, _>| route().layer(l.clone()).layer(l);
    let both_ways = |l: RateLimitLayer<_, _>| route().route_layer(l.clone()).layer(l);
    let merged = |l: RateLimitLayer<_, _>| Router::new().merge(route().layer(l.clone())).layer(l);
    let nested = |l: RateLimitLayer<_, _>| Router::new().fallback_service(route().layer(l.clone())).layer(l);
    let built = |l: RateLimitLayer<_, _>| route().layer(ServiceBuilder::new().layer(l.clone()).layer(l));
    for app in [twice(l()), both_ways(l()), merged(l()), nested(l()), built(l())] {
        let mut expected = [200; 11];
        expected[10] = 429;
        assert_eq!(get_all(&app, &["/"; 11]).await, expected);
    }
}

#[tokio::test]
async fn layers_that_answer_differently_are_still_one() {
    let outer = layer(&clock(), "3/min fixed");
    let inner = outer.clone().answer_with(|_| http::Response::new(Full::from("slow down")));
    let service = outer.layer(service(&inner));
    assert_eq!(statuses(&service, 4, &[]).await, [200, 200, 200, 429]);
}

/// A response reports each limit once, with what really remains.
#[tokio::test]
async fn the_fields_are_written_once() {
    let layer = layer(&clock(), "10/min fixed");
    let service = layer.layer(service(&layer));
    let answer = send(&service, request(&[])).await;
    assert_eq!(only(answer.headers(), "ratelimit"), r#""all";r=9;t=60"#);
}

/// Reloading between the two, or a limiter that they share: what counts is the policy.
#[tokio::test]
async fn one_policy_is_known_by_its_limiter_name_and_limits() {
    let of = |name: &str, limits: &str| {
        Policies::new([Policy::new(name, KeySource::everybody(), limit(limits)).unwrap()]).unwrap()
    };
    for (outer, inner, expected) in [
        (("a", "4/min fixed"), ("a", "4/min fixed"), [200, 200, 200, 200, 429]),
        // Another policy, with a count of its own.
        (("a", "4/min fixed"), ("b", "2/min fixed"), [200, 200, 429, 429, 429]),
        // They share a count, and both limits hold: the stricter one is not lost.
        (("a", "9/min fixed"), ("a", "2/min fixed"), [200, 429, 429, 429, 429]),
    ] {
        let limiter = Arc::new(limiter(&clock()));
        let inner = RateLimitLayer::in_process(limiter.clone(), of(inner.0, inner.1));
        let outer = RateLimitLayer::in_process(limiter, of(outer.0, outer.1));
        assert_eq!(statuses(&outer.layer(service(&inner)), 5, &[]).await, expected);
    }
    // Two stores are two counts.
    let clock = clock();
    let service = layer(&clock, "2/min fixed").layer(service(&layer(&clock, "2/min fixed")));
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
}

/// The outer layer does not know the user yet, so its policy does not apply there. Otherwise nobody would be counted.
#[tokio::test]
async fn a_policy_that_did_not_apply_outside_applies_inside() {
    let source = KeySource::extension(|user: &String| user.clone());
    let policy = Policy::new("user", source, limit("2/min fixed")).unwrap();
    let policy = policy.when_missing(ratelimit_tower::Missing::Exempt);
    let layer = layer_under(&clock(), Policies::new([policy]).unwrap());
    let authenticated = ServiceBuilder::new().map_request(|mut request: Request<Body>| {
        request.extensions_mut().insert("ann".to_owned());
        request
    });
    let service = layer.layer(authenticated.service(service(&layer)));
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
}

/// With a charge after the response, in shadow, held, or with a true cost from a header that the layer removes.
#[tokio::test]
async fn every_way_of_charging_charges_once() {
    let policy = |limits: &str| Policy::new("p", KeySource::everybody(), limit(limits)).unwrap();
    let only_if = || policy("3/min fixed").charge(Charge::only_if(|_| true));
    for way in
        [RateLimitLayer::in_process, RateLimitLayer::new] as [fn(_, Policies) -> RateLimitLayer<_, _>; 2]
    {
        let served = |policy| {
            let layer = way(limiter(&clock()), Policies::new([policy]).unwrap());
            layer.layer(service(&layer))
        };
        assert_eq!(statuses(&served(only_if()), 4, &[]).await, [200, 200, 200, 429]);
        assert_eq!(statuses(&served(policy("1 at once")), 1, &[]).await, [200]);
    }
    let settle = Settle::take_response_header("x-cost".parse().unwrap());
    let layer = layer_under(&clock(), Policies::new([policy("10/min fixed").settle(settle)]).unwrap());
    let seen = Arc::new(Mutex::new(0));
    let costly = tower::service_fn(move |request: Request<Body>| {
        *seen.lock().unwrap() += usize::from(!Charged::of(request.extensions()).is_empty());
        let answer = http::Response::builder().header("x-cost", "5").body(Body::default()).unwrap();
        std::future::ready(Ok::<_, String>(answer))
    });
    let service = layer.layer(layer.layer(costly));
    let answer = send(&service, request(&[])).await;
    assert!(answer.headers().get("x-cost").is_none());
    assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
}
