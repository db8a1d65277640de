//! Helpers for several tests: a service behind the layer, requests, and the contents of a response.
#![allow(dead_code)] // no test needs all of it

#[cfg(feature = "metrics")]
pub(crate) mod counters;
pub(crate) mod hostile;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use ratelimit_core::{CounterStore, Limit, ManualClock, RateLimiter, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{Answer, KeySource, PeerAddress, Policies, Policy, RateLimitLayer, SharedPolicies};
use tower::{Layer, Service, ServiceExt};

pub(crate) type Body = Full<Bytes>;

/// A clock that stands at the start of a day.
pub(crate) fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(86_400 * 20_000))
}

pub(crate) fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// A limiter on a store of its own.
pub(crate) fn limiter(clock: &ManualClock) -> RateLimiter<MemoryStore, ManualClock> {
    RateLimiter::without_limits(MemoryStore::new()).with_clock(clock.clone())
}

/// The layer in memory under these policies.
pub(crate) fn layer_under(
    clock: &ManualClock,
    policies: impl Into<SharedPolicies>,
) -> RateLimitLayer<MemoryStore, ManualClock> {
    RateLimitLayer::in_process(limiter(clock), policies)
}

/// The layer in memory, with one policy for everybody under these limits.
pub(crate) fn layer(clock: &ManualClock, limits: &str) -> RateLimitLayer<MemoryStore, ManualClock> {
    let policy = Policy::new("all", KeySource::everybody(), limit(limits)).unwrap();
    layer_under(clock, Policies::new([policy]).unwrap())
}

/// A service that answers with the status in the request's header `x-status` (200 if there is none); `error` makes it fail.
pub(crate) fn service<S, A>(
    layer: &RateLimitLayer<S, ManualClock, A>,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = String, Future: Send> + Clone + use<S, A>
where
    S: CounterStore + 'static,
    A: Answer<Body> + 'static,
{
    layer.layer(tower::service_fn(|request: Request<Body>| async move {
        let status =
            request.headers().get("x-status").map_or("200", |status| status.to_str().unwrap()).to_owned();
        if status == "error" {
            return Err("the inner service failed".to_owned());
        }
        if status == "never" {
            std::future::pending::<()>().await;
        }
        let response = Response::builder().status(status.parse::<u16>().unwrap());
        Ok(response.body(Full::from("inner")).unwrap())
    }))
}

/// A request with these headers from 192.0.2.1.
pub(crate) fn request(headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = Request::new(Body::default());
    request.extensions_mut().insert(PeerAddress([192, 0, 2, 1].into()));
    for (name, value) in headers {
        request.headers_mut().append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    request
}

/// A gRPC request: a POST with this `Content-Type`.
pub(crate) fn grpc_request(kind: &str) -> Request<Body> {
    let mut request = request(&[("content-type", kind)]);
    *request.method_mut() = Method::POST;
    request
}

/// Sends one request.
pub(crate) async fn send<S>(service: &S, request: Request<Body>) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = String> + Clone,
{
    service.clone().oneshot(request).await.unwrap()
}

/// The statuses of `count` requests like this one.
pub(crate) async fn statuses<S>(service: &S, count: usize, headers: &[(&'static str, &str)]) -> Vec<u16>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = String> + Clone,
{
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(send(service, request(headers)).await.status().as_u16());
    }
    statuses
}

pub(crate) async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// The only value of a header.
pub(crate) fn only<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    let values: Vec<_> = headers.get_all(name).iter().collect();
    assert_eq!(values.len(), 1, "{name}: {values:?}");
    values[0].to_str().unwrap()
}

pub(crate) fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.parse().unwrap())
}

pub(crate) const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;
