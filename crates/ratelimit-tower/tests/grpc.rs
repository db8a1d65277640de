//! gRPC: refusals as tonic's own client reads them, over real connections.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt as _;
use ratelimit_tower::{Cost, End, KeySource, Missing, Policies, Policy, Settle, TrustedProxies};
use tokio::net::TcpListener;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

use support::*;

/// Serves tonic's health service behind the layer.
async fn serve(policies: Policies, clock: &ratelimit_core::ManualClock) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = layer_under(clock, policies).grpc();
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(
        tonic::transport::Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming),
    );
    address
}

async fn check(address: SocketAddr, user: Option<&str>) -> Result<(), Status> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let mut request = Request::new(HealthCheckRequest::default());
    if let Some(user) = user {
        request.metadata_mut().insert("x-user", user.parse().unwrap());
    }
    client.check(request).await.map(|_| ())
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_with_retry_info() {
    let clock = clock();
    clock.advance(Duration::from_millis(250));
    let source = KeySource::client_address(TrustedProxies::none()).and(KeySource::path());
    let policies = Policies::new([Policy::new("checks", source, limit("2/min fixed")).unwrap()]).unwrap();
    let address = serve(policies, &clock).await;
    check(address, None).await.unwrap();
    check(address, None).await.unwrap();
    let status = check(address, None).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "try again in 60 seconds"));
    // Of a response that is all trailers, a client finds it in the metadata of the status.
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "59750");
    let details = status.get_error_details();
    assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_millis(59_750)));
    let violations = &details.quota_failure().unwrap().violations;
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].subject, "checks");
    clock.advance(details.retry_info().unwrap().retry_delay.unwrap());
    check(address, None).await.unwrap();
}

#[tokio::test]
async fn other_refusals_have_their_own_codes() {
    let clock = clock();
    let header = KeySource::header(http::HeaderName::from_static("x-user"));
    let by = |source| Policy::new("p", source, limit("1/min")).unwrap();
    let never = by(KeySource::everybody()).cost(Cost::function(|_| 2));
    let extension = by(KeySource::extension(|name: &String| name.clone()));
    for (policy, user, code) in [
        (never, None, Code::ResourceExhausted),
        (by(header.clone()).when_missing(Missing::Refuse), None, Code::Unauthenticated),
        (by(header).when_missing(Missing::Refuse), Some("ann"), Code::Ok),
        (extension, None, Code::Internal),
    ] {
        let address = serve(Policies::new([policy]).unwrap(), &clock).await;
        let status = check(address, user).await.err().unwrap_or_else(|| Status::ok(""));
        assert_eq!(status.code(), code);
        let pushback = status.metadata().get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap());
        assert_eq!(pushback, (code != Code::Ok).then_some("-1"), "waiting does not help: {code}");
        assert!(status.get_error_details().retry_info().is_none());
    }
}

/// The status of a response is in its trailers. The layer knows tonic's bodies.
#[tokio::test]
async fn the_trailers_settle_the_cost() {
    let settle = Settle::function(|end: &End<'_>| match end.trailers?.get("grpc-status")?.as_bytes() {
        b"0" => Some(1),
        _ => None,
    });
    let policy = Policy::new("trailers", KeySource::everybody(), limit("10/day fixed")).unwrap();
    let policy = policy.cost(Cost::units(4)).settle(settle);
    let address = serve(Policies::new([policy]).unwrap(), &clock()).await;
    for used in 0..=6 {
        check(address, None).await.unwrap_or_else(|status| panic!("{used}: {status}"));
    }
    let status = check(address, None).await.unwrap_err();
    assert_eq!(status.get_error_details().quota_failure().unwrap().violations[0].subject, "trailers");
}

/// One server for both: the type of the request decides.
#[tokio::test]
async fn grpc_requests_get_grpc_answers_by_default() {
    let service = service(&layer(&clock(), "1/min fixed"));
    send(&service, request(&[])).await;
    for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC-Web"] {
        let answer = send(&service, grpc_request(kind)).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(only(answer.headers(), "content-type"), kind);
        assert_eq!(only(answer.headers(), "grpc-status"), "8");
        for absent in ["ratelimit", "ratelimit-policy", "retry-after", "cache-control"] {
            assert!(answer.headers().get(absent).is_none(), "{absent}");
        }
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(
            status.get_error_details().retry_info().unwrap().retry_delay,
            Some(Duration::from_secs(60))
        );
        assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
    for kind in ["application/json", "application/grp"] {
        assert_eq!(send(&service, grpc_request(kind)).await.status(), 429);
    }
    // A refusal with the status 200 would be stored in a cache.
    let answer = send(&service, request(&[("content-type", "application/grpc")])).await;
    assert_eq!((answer.status().as_u16(), only(answer.headers(), "cache-control")), (429, "no-store"));
}

/// A client waits as long as the server says, and not at all if that is longer than the field can tell.
#[tokio::test]
async fn retries_are_pushed_back_until_they_fit() {
    for (limits, pushed_back) in [
        ("1/min fixed", "60000"),
        ("1000000/s burst 1", "1"), // a microsecond, rounded up
        ("1/24d fixed", "1382400000"),
        ("1/1000d fixed", "-1"),
        ("0/s", "-1"),
    ] {
        let service = service(&layer(&clock(), limits));
        send(&service, grpc_request("application/grpc")).await;
        let refusal = send(&service, grpc_request("application/grpc")).await;
        assert_eq!(only(refusal.headers(), "grpc-status"), "8");
        assert_eq!(only(refusal.headers(), "grpc-retry-pushback-ms"), pushed_back, "{limits}");
    }
}
