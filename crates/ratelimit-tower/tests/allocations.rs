//! The layer allocates nothing for a request of a known key, except for the fields of the response.

mod support;

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::{HeaderValue, Request, Response, header};
use ratelimit_tower::{Headers, KeySource, Policies, Policy, RateLimitLayer, TrustedProxies};
use support::{Body, clock, limit, limiter, request};
use tower::{Layer as _, Service};

/// The number of allocations of a service for a request that is not its first.
fn allocations(
    mut service: impl Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
) -> u64 {
    let mut call = |request| {
        let answer = pin!(service.call(request)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(black_box(answer), Poll::Ready(Ok(answer)) if answer.status().is_success()));
    };
    call(request(&[]));
    let known = request(&[]);
    allocation_counter::measure(|| call(known)).count_total
}

/// The number of allocations that the layer adds, with these fields on responses.
fn of_the_layer(headers: Headers) -> u64 {
    let answer = |_| {
        let mut answer = Response::new(Body::from("inner"));
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        std::future::ready(Ok::<_, Infallible>(answer))
    };
    let by_address = KeySource::client_address(TrustedProxies::none());
    let policy = Policy::new("address", by_address, limit("1000/min")).unwrap();
    let policies = Policies::new([policy]).unwrap().headers(headers);
    let layer = RateLimitLayer::in_process(limiter(&clock()), policies);
    allocations(layer.layer(tower::service_fn(answer))) - allocations(tower::service_fn(answer))
}

#[test]
fn admitted_requests_without_fields_allocate_nothing() {
    assert_eq!(of_the_layer(Headers::of([])), 0);
    assert_eq!(of_the_layer(Headers::default().only_refusals()), 0);
}

#[test]
fn the_fields_take_two_allocations() {
    assert_eq!(of_the_layer(Headers::default()), 2);
}
