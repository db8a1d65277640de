//! What the guides say about several layers, and about preflights that a file exempts.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::routing::get;
use ratelimit_memory::{Limit, MemoryStore};
use ratelimit_tower::config::Config;
use ratelimit_tower::{KeySource, Policies, Policy, RateLimitLayer};
use tower::ServiceExt as _;

fn policy(name: &str, limit: &str) -> Policy {
    Policy::new(name, KeySource::everybody(), limit.parse::<Limit>().unwrap()).unwrap()
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer<MemoryStore> {
    RateLimitLayer::in_process(MemoryStore::new(), Policies::new(policies).unwrap())
}

/// The body of the fourth request's refusal.
async fn fourth(app: Router) -> String {
    let mut last = None;
    for _ in 0..4 {
        let request = Request::get("/").body(Body::empty()).unwrap();
        last = Some(app.clone().oneshot(request).await.unwrap());
    }
    let body = to_bytes(last.unwrap().into_body(), 10_000).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn two_layers_are_not_all_or_nothing() {
    let app = || Router::new().route("/", get(|| async {}));
    let (narrow, wide) = (|| policy("narrow", "1/d bucket"), || policy("wide", "3/d bucket"));

    // The second and the third request are refused by the inner layer, and the outer one has charged them.
    let two = app().layer(layer([narrow()])).layer(layer([wide()]));
    let refusal = fourth(two).await;
    assert!(refusal.contains(r#""violated-policies":["wide"]"#), "{refusal}");

    let one = app().layer(layer([narrow(), wide()]));
    let refusal = fourth(one).await;
    assert!(refusal.contains(r#""violated-policies":["narrow"]"#), "{refusal}");
}

#[tokio::test]
async fn preflights_can_be_exempt() {
    let file = "exempt: ['OPTIONS /', 'OPTIONS /{*path}']\npolicies: [{name: all, key: everybody, limit: 1/d bucket}]";
    let config = Config::from_yaml(file, "limits.yaml").unwrap();
    let layer = RateLimitLayer::in_process(MemoryStore::new(), config.policies().clone());
    let app: Router = Router::new().fallback(|| async {}).layer(layer);
    for (method, path, status) in [
        ("OPTIONS", "/", 200),
        ("OPTIONS", "/a/b", 200),
        ("POST", "/", 200),
        ("POST", "/a/b", 429),
        ("OPTIONS", "/a/b", 200),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status, "{method} {path}");
    }
}
