//! The layer in axum and hyper, over real connections.

mod support;

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use ratelimit_core::RateLimiter;
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{
    End, KeySource, PeerAddress, Policies, Policy, RateLimitLayer, Settle, TrustedProxies,
};
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceBuilder};

use support::*;

fn client() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn fetch(address: SocketAddr, path: &str, headers: &[(&'static str, &[u8])]) -> (u16, http::HeaderMap) {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = format!("http://{address}{path}").parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, http::HeaderValue::from_bytes(value).unwrap());
    }
    let answer = client().request(request).await.unwrap();
    let (head, body) = answer.into_parts();
    body.collect().await.unwrap();
    (head.status.as_u16(), head.headers)
}

async fn axum(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn memory(policies: Policies) -> RateLimitLayer<MemoryStore, ratelimit_core::ManualClock> {
    RateLimitLayer::in_process(limiter(&clock()), policies)
}

#[tokio::test]
async fn axum_counts_by_the_template_of_the_route_and_by_the_peer() {
    let source = KeySource::path_template().and(KeySource::client_address(TrustedProxies::none()));
    let policies = Policies::new([Policy::new("route", source, limit("2/min")).unwrap()]).unwrap();
    let app =
        Router::new().route("/users/{id}", get(|| async { "user" })).route("/slow", get(|| async { "slow" }));
    let layer = memory(policies);
    let unknown_paths = axum(app.clone().layer(layer.clone())).await;
    let address = axum(app.route_layer(layer)).await;
    let spoofed: [(&'static str, &[u8]); 2] =
        [("x-forwarded-for", b"203.0.113.7"), ("forwarded", b"for=203.0.113.8")];
    assert_eq!(fetch(address, "/users/1", &[]).await.0, 200);
    assert_eq!(fetch(address, "/users/2", &spoofed).await.0, 200);
    let (status, headers) = fetch(address, "/users/3", &spoofed[..1]).await;
    assert_eq!((status, only(&headers, "content-type")), (429, "application/problem+json"));
    assert_eq!(fetch(address, "/slow", &[]).await.0, 200);
    assert_eq!(fetch(address, "/nowhere", &[]).await.0, 404);
    // Without a route there is no template: the request is refused before the 404, as a mistake of the program.
    assert_eq!(fetch(unknown_paths, "/nowhere", &[]).await.0, 500);
}

#[tokio::test]
async fn axum_takes_the_layer_per_route_and_in_a_builder() {
    let limit_of =
        |text| Policies::new([Policy::new("p", KeySource::everybody(), limit(text)).unwrap()]).unwrap();
    let app = Router::new()
        .route("/a", get(|| async { "a" }).layer(memory(limit_of("1/min"))))
        .route("/b", get(|| async { "b" }))
        .layer(ServiceBuilder::new().layer(memory(limit_of("4/min"))));
    let address = axum(app).await;
    let mut seen = Vec::new();
    for path in ["/a", "/a", "/b", "/b", "/b"] {
        seen.push(fetch(address, path, &[]).await.0);
    }
    assert_eq!(seen, [200, 429, 200, 200, 429]);
}

/// axum hides the prefix of a nested router from what is inside it.
#[cfg(feature = "config")]
#[tokio::test]
async fn routes_and_keys_are_whole_paths_in_nested_routers() {
    let file = r#"
        policies = [
            { name = "log-in", key = "everybody", limit = "1/min", routes = ["GET /api/v1/login"] },
            { name = "path", key = "path", limit = "2/min" },
        ]
    "#;
    let config = ratelimit_tower::config::Config::from_toml(file, "limits.toml").unwrap();
    let app =
        Router::new().route("/login", get(|| async { "welcome" })).layer(memory(config.policies().clone()));
    let api = Router::new().nest("/v1", app.clone()).nest("/v2", app);
    let address = axum(Router::new().nest("/api", api)).await;
    let mut seen = Vec::new();
    for version in ["v1", "v1", "v2", "v2", "v2"] {
        seen.push(fetch(address, &format!("/api/{version}/login"), &[]).await.0);
    }
    assert_eq!(seen, [200, 429, 200, 200, 429]);
}

#[tokio::test]
async fn axum_without_connect_info_answers_500() {
    let layer = RateLimitLayer::in_process(MemoryStore::new(), limit("5/min"));
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    assert_eq!(fetch(address, "/", &[]).await.0, StatusCode::INTERNAL_SERVER_ERROR.as_u16());
}

#[tokio::test]
async fn hyper_counts_by_the_peer_extension() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(clock());
    let layer = RateLimitLayer::in_process(limiter, limit("2/min"));
    tokio::spawn(async move {
        while let Ok((connection, peer)) = listener.accept().await {
            let limited = layer.layer(tower::service_fn(|_: Request<hyper::body::Incoming>| async {
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("hello")))
            }));
            let service = ServiceBuilder::new()
                .map_request(move |mut request: Request<hyper::body::Incoming>| {
                    request.extensions_mut().insert(PeerAddress(peer.ip()));
                    request
                })
                .service(limited);
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(connection), TowerToHyperService::new(service)));
        }
    });
    let mut seen = Vec::new();
    for header in [&b"a"[..], b"\xff\xfe", b"203.0.113.9"] {
        seen.push(fetch(address, "/", &[("x-forwarded-for", header)]).await.0);
    }
    assert_eq!(seen, [200, 200, 429]);
}

/// A body that does not say how long it is, and whose end shows only when it is polled again.
struct Streamed(Option<Bytes>);

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// hyper does not poll the body again when it has sent as much as `Content-Length` says.
#[tokio::test]
async fn a_streamed_response_with_a_length_ends_complete() {
    for (length, content) in [("5", Some(Bytes::from("whole"))), ("0", None)] {
        let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let settle = Settle::function(move |end: &End<'_>| {
            sender.send((end.response_bytes, end.complete)).unwrap();
            None
        });
        let policy = Policy::new("p", KeySource::everybody(), limit("9/min")).unwrap().settle(settle);
        let sent = content.as_ref().map_or(0, Bytes::len) as u64;
        let handler =
            move || async move { ([("content-length", length)], axum::body::Body::new(Streamed(content))) };
        let app = Router::new().route("/", get(handler)).layer(memory(Policies::new([policy]).unwrap()));
        let address = axum(app).await;
        assert_eq!(fetch(address, "/", &[]).await.0, 200);
        assert_eq!(ended.recv().await.unwrap(), (sent, true));
    }
}

/// axum and hyper drop the body of such a response without reading it.
#[tokio::test]
async fn a_response_that_is_sent_without_its_body_ends_complete() {
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304)] {
        let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let settle = Settle::function(move |end: &End<'_>| {
            sender.send((end.response_bytes, end.complete)).unwrap();
            None
        });
        let policy = Policy::new("p", KeySource::everybody(), limit("9/min")).unwrap().settle(settle);
        let body = || axum::body::Body::new(Streamed(Some(Bytes::from("whole"))));
        let handler = move || async move { (StatusCode::from_u16(status).unwrap(), body()) };
        let app = Router::new().route("/", get(handler)).layer(memory(Policies::new([policy]).unwrap()));
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = format!("http://{}/", axum(app).await).parse().unwrap();
        assert_eq!(client().request(request).await.unwrap().status().as_u16(), status);
        assert_eq!(ended.recv().await.unwrap(), (0, true), "{method} {status}");
    }
}
