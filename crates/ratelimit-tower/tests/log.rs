//! What the log says at its usual level, `info`: what an operator needs without turning anything on.

mod support;

use std::fs::{self, File};
use std::path::Path;

use http::HeaderName;
use ratelimit_core::RateLimiter;
use ratelimit_core::layers::Resilience;
use ratelimit_memory::{MemoryConfig, MemoryStore, WhenFull};
use ratelimit_tower::{ClientList, KeySource, Missing, Policies, Policy, RateLimitLayer};
use tracing_subscriber::filter::LevelFilter;

use support::*;

/// Writes events into this file until the guard is dropped.
fn logging(path: &Path) -> tracing::subscriber::DefaultGuard {
    let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_ansi(false);
    tracing::subscriber::set_default(subscriber.with_writer(File::create(path).unwrap()).finish())
}

/// The only test of its program: what is logged at most once a second would otherwise depend on the others.
#[tokio::test]
async fn the_log_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let _logging = logging(&log);
    let api_key = || KeySource::api_key(HeaderName::from_static("x-api-key"));

    // A key that is sent twice: the client and the operator learn which one.
    let policies = Policies::new([Policy::new("customer", api_key(), limit("9/min")).unwrap()]).unwrap();
    let service_of = |policies| service(&layer_under(&clock(), policies));
    let twice = [("x-api-key", "s3cret"), ("x-api-key", "s3cret")];
    let answer = send(&service_of(policies), request(&twice)).await;
    assert_eq!(answer.status(), 400);
    let body = text(answer).await;
    assert!(body.contains("the request has the header x-api-key more than once"), "{body}");
    let logged = fs::read_to_string(&log).unwrap();
    let event = "a request has a header more than once of which a policy needs one";
    assert!(logged.contains(event) && logged.contains("header=x-api-key"), "{logged}");
    assert!(logged.contains(r#"policy="customer""#) && !logged.contains("s3cret"), "{logged}");

    // Also in gRPC, whose messages are percent-encoded, and after another source.
    let odd = HeaderName::from_static("x-100%");
    let source = KeySource::bearer_token().or(KeySource::header(odd));
    let policy = Policy::new("odd", source, limit("9/min")).unwrap().when_missing(Missing::Exempt);
    let service_by_odd = service_of(Policies::new([policy]).unwrap());
    let mut request_twice = grpc_request("application/grpc");
    for value in ["1", "2"] {
        request_twice.headers_mut().append("x-100%", value.parse().unwrap());
    }
    let answer = send(&service_by_odd, request_twice).await;
    let message = "the request has the header x-100%25 more than once";
    assert_eq!(only(answer.headers(), "grpc-message"), message);

    // The same if it is a list that cannot be read.
    let list = |client| ClientList::new(api_key(), [client]).unwrap();
    let by_all =
        || Policies::new([Policy::new("all", KeySource::everybody(), limit("9/min")).unwrap()]).unwrap();
    let log_of_last = |before: &str| fs::read_to_string(&log).unwrap().split_off(before.len());
    for (lists, status, event) in [
        (by_all().deny(list("leaked")), 403, "a request has a header more than once by which a list refuses"),
        (
            by_all().allow(list("s3cret")),
            200,
            "a request has a header more than once by which a list exempts",
        ),
    ] {
        let before = fs::read_to_string(&log).unwrap();
        let answer = send(&service_of(lists), request(&twice)).await;
        assert_eq!(answer.status(), status);
        let body = text(answer).await;
        let is_named = body.contains("the request has the header x-api-key more than once");
        assert_eq!(is_named, status == 403, "{body}");
        let logged = log_of_last(&before);
        assert!(logged.contains(event) && logged.contains(" INFO "), "{logged}");
        assert!(logged.contains("header=x-api-key") && !logged.contains("s3cret"), "{logged}");
    }
    let listed = send(&service_of(by_all().deny(list("s3cret"))), request(&twice[..1])).await;
    assert_eq!(listed.status(), 403);
    let body = text(listed).await;
    assert!(body.contains("requests of this client are not served"), "{body}");

    // A client that did not send it learns what to send.
    let policy = Policy::new("customer", api_key(), limit("9/min")).unwrap().when_missing(Missing::Refuse);
    let answer = send(&service_of(Policies::new([policy]).unwrap()), request(&[])).await;
    let body = text(answer).await;
    assert!(body.contains("the request has no header x-api-key"), "{body}");

    // The fallback decides: why? The breaker stays closed as long as some calls are answered.
    let full = MemoryConfig::default().max_keys(1).when_full(WhenFull::Refuse);
    let store = Resilience::new(MemoryStore::with_config(full)).fallback(MemoryStore::new(), 1);
    let limiter = RateLimiter::without_limits(store).with_clock(clock());
    let policies = Policies::new([Policy::new("customer", api_key(), limit("9/min")).unwrap()]).unwrap();
    let service = service(&RateLimitLayer::new(limiter, policies));
    for user in 0..200 {
        assert_eq!(statuses(&service, 1, &[("x-api-key", &user.to_string())]).await, [200]);
    }
    let logged = fs::read_to_string(&log).unwrap();
    let because: Vec<_> = logged.lines().filter(|line| line.contains("the fallback decides")).collect();
    assert!(!because.is_empty() && because.len() < 100, "{logged}");
    assert!(
        because.iter().all(|line| line.contains(" WARN ") && line.contains("error=memory is full: ")),
        "{logged}"
    );
}
