//! Checks for requests that another program serves: the same decisions, keys and fields as the layer's.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use ratelimit_core::{Limit, RateLimiter};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{
    Answered, Asked, Charge, Checker, Head, KeySource, Plan, Policies, Policy, RateLimitLayer, Reason,
};
use tower::ServiceExt as _;

fn user() -> KeySource {
    KeySource::header(HeaderName::from_static("x-user"))
}

fn policy(name: &str, source: KeySource, limit: &str) -> Policy {
    Policy::new(name, source, limit.parse::<Limit>().unwrap()).unwrap()
}

fn request(user: &str) -> Request<Body> {
    Request::builder().uri("/").header("x-user", user).body(Body::empty()).unwrap()
}

fn fields(mut answered: Answered<'_>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    answered.write_fields(&mut fields);
    fields
}

#[tokio::test]
async fn it_counts_with_the_layer_and_reports_the_same_fields() {
    let policies =
        Policies::new([policy("user", user(), "3/min"), policy("all", KeySource::everybody(), "100/h")]);
    let policies = Arc::new(policies.unwrap());
    let store = Arc::new(MemoryStore::new());
    let limiter = Arc::new(RateLimiter::without_limits(store));
    let layer = RateLimitLayer::new(limiter.clone(), &*policies);
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let checker = Checker::new(limiter);

    let asked = |name: &str, client: &[u8]| {
        let key = policies.get(name).unwrap().key_of(client).unwrap();
        (name.to_owned(), key)
    };
    let (user, key) = asked("user", b"7");
    let (all, everybody) = asked("all", b"everybody");
    let by_name = Asked::of(policies.clone()).policy(&user, &key, 1, None).policy(&all, &everybody, 1, None);
    let head = request("7");
    let by_head = Asked::of_request(policies.clone(), &Head::of(&head));
    assert_eq!(by_name.each().map(|(name, _)| name).collect::<Vec<_>>(), ["user", "all"]);

    for (asked, status) in
        [(&by_name, 200), (&by_head, 200), (&by_name, 200), (&by_name, 429), (&by_head, 429)]
    {
        let seen = checker.peek(asked).await.unwrap();
        assert!(seen.allowed());
        let answered = checker.check(asked).await;
        assert_eq!(answered.allowed(), status == 200);
        assert_eq!(answered.decision().is_some_and(|decision| decision.charged()), status == 200);
        if status == 429 {
            let reason = answered.reason();
            assert_eq!(
                (reason, answered.violated_policies().collect::<Vec<_>>()),
                (Some(Reason::QuotaExceeded), vec!["user"])
            );
            assert!(answered.in_words().unwrap().starts_with("try again in "));
            let wait = answered.retry_after().unwrap();
            let response = app.clone().oneshot(request("7")).await.unwrap();
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            let mine = fields(answered);
            for name in ["ratelimit", "ratelimit-policy", "cache-control"] {
                // Both in the same minute, unless one begins in between.
                assert_eq!(mine.contains_key(name), response.headers().contains_key(name), "{name}");
            }
            assert_eq!(mine["ratelimit-policy"], response.headers()["ratelimit-policy"]);
            assert_eq!(
                mine["retry-after"],
                *wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).to_string()
            );
        }
    }
    let other = app.oneshot(request("8")).await.unwrap();
    assert_eq!(other.headers()["ratelimit"].to_str().unwrap().split(';').nth(1), Some("r=2"));
}

#[tokio::test]
async fn another_plan_and_a_cost() {
    let policies = Arc::new(Policies::new([policy("user", user(), "3/min")]).unwrap());
    let checker = Checker::new(MemoryStore::new());
    let key = policies.get("user").unwrap().key_of(b"7").unwrap();
    let plan = Plan::new("large", "100/min".parse::<Limit>().unwrap()).unwrap();
    let asked = Asked::of(policies.clone()).policy("user", &key, 40, Some(plan));
    let answered = checker.check(&asked).await;
    let decision = answered.decision().unwrap();
    assert_eq!((decision.limit(), decision.remaining()), (100, 60));
    checker.limiter().settle(decision, 10).await.unwrap();
    assert_eq!(checker.peek(&asked).await.unwrap().decision().unwrap().remaining(), 90);
    let unknown = Asked::of(policies).policy("nobody", &key, 1, None);
    assert!(checker.check(&unknown).await.decision().is_none());
}

#[tokio::test]
async fn policies_in_shadow_refuse_nothing_and_count_by_themselves() {
    let watched = policy("watched", user(), "1/min").in_shadow();
    let policies = Arc::new(Policies::new([watched, policy("user", user(), "3/min")]).unwrap());
    let checker = Checker::new(MemoryStore::new());
    let head = request("7");
    let asked = Asked::of_request(policies.clone(), &Head::of(&head));
    for allowed in [true, true, true, false] {
        let answered = checker.check(&asked).await;
        assert_eq!(answered.allowed(), allowed);
        assert_eq!(answered.decision().unwrap().each().len(), 1);
        let fields = fields(answered);
        assert!(!fields["ratelimit-policy"].to_str().unwrap().contains("watched"));
    }
    let key = policies.get("watched").unwrap().key_of(b"7").unwrap();
    let used = checker
        .limiter()
        .peek(ratelimit_core::Request::new(&key).limits(policies.get("watched").unwrap().limits()));
    assert_eq!(used.await.unwrap().remaining(), 0);
}

#[tokio::test]
async fn without_responses_everything_is_charged_before() {
    let only_failed = policy("failed", user(), "1/min").charge(Charge::only_if(|_| false));
    let policies = Policies::new([only_failed]).unwrap();
    assert!(policies.each().all(Policy::needs_response));
    let policies = Arc::new(policies.without_responses());
    assert!(!policies.each().any(Policy::needs_response));
    let checker = Checker::new(MemoryStore::new());
    let head = request("7");
    let asked = Asked::of_request(policies, &Head::of(&head));
    assert!(checker.check(&asked).await.allowed());
    assert!(!checker.check(&asked).await.allowed());
}

#[tokio::test]
async fn a_request_without_what_it_is_counted_by_is_refused() {
    let policies = policy("user", user(), "3/min").when_missing(ratelimit_tower::Missing::Refuse);
    let policies = Arc::new(Policies::new([policies]).unwrap());
    let checker = Checker::new(MemoryStore::new());
    let head = Request::builder().uri("/").body(()).unwrap();
    let asked = Asked::of_request(policies, &Head::of(&head));
    let answered = checker.check(&asked).await;
    assert_eq!(answered.reason(), Some(Reason::Unidentified));
    assert_eq!(answered.in_words().as_deref(), Some("the request has no header x-user"));
}
