//! What a program shares with the layer: its limiter, its policies, and what a file cannot know.

mod support;

use std::sync::Arc;

use http::Request;
use ratelimit_core::layers::Resilience;
use ratelimit_core::{CounterStore, Limits, ManualClock, RateLimiter};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::config::{Config, Provided};
use ratelimit_tower::{Cost, Family, Headers, RateLimitLayer};

use support::*;

/// In a file, and with both ways of calling the store.
#[tokio::test]
async fn a_limiter_in_an_arc_and_borrowed_policies_make_a_layer() {
    let config =
        Config::from_yaml("policies: [{name: all, key: everybody, limit: 2/min}]", "limits.yaml").unwrap();
    let policy = config.policies().each().next().unwrap();
    let key = policy.key_of(b"everybody").unwrap();
    let limits: Limits = policy.limits().clone();

    async fn used<S: CounterStore>(
        limiter: &RateLimiter<S, ManualClock>,
        key: &[u8],
        limits: &Limits,
    ) -> u64 {
        let request = ratelimit_core::Request::new(key).limits(limits);
        2 - limiter.peek(request).await.unwrap().remaining()
    }

    let in_memory = Arc::new(limiter(&clock()));
    let layer = RateLimitLayer::in_process(in_memory.clone(), config.policies());
    assert_eq!(statuses(&service(&layer), 1, &[]).await, [200]);
    assert_eq!(used(&in_memory, &key, &limits).await, 1);

    let store = Resilience::new(MemoryStore::new()).fallback(MemoryStore::new(), 1);
    let resilient = Arc::new(RateLimiter::without_limits(store).with_clock(clock()));
    let layer = RateLimitLayer::new(resilient.clone(), config.policies());
    assert_eq!(statuses(&service(&layer), 2, &[]).await, [200, 200]);
    assert_eq!(used(&resilient, &key, &limits).await, 2);
}

/// How many rows a request asks for, which middleware has found out.
#[derive(Clone, Copy)]
struct Rows(u64);

#[tokio::test]
async fn a_policy_of_a_file_can_have_a_cost_that_the_program_computes() {
    let rows = Cost::function(|request| request.extensions.get::<Rows>().map_or(1, |rows| rows.0));
    let provided = Provided::default().cost("rows", rows);
    let file = r#"
        policies = [
            { name = "rows", key = "everybody", limit = "10/min fixed", cost = "rows" },
            { name = "requests", key = "everybody", limit = "4/min fixed" },
        ]
    "#;
    let config = Config::from_toml_with(file, "limits.toml", &provided).unwrap();
    let service = service(&layer_under(&clock(), config.policies()));
    let ask = async |rows: u64| {
        let mut request: Request<Body> = request(&[]);
        request.extensions_mut().insert(Rows(rows));
        send(&service, request).await.status().as_u16()
    };
    // One decision for both: a refusal by one charges the other nothing.
    assert_eq!([ask(7).await, ask(4).await, ask(4).await, ask(3).await], [200, 429, 429, 200]);
    assert_eq!([ask(0).await, ask(0).await, ask(0).await], [200, 200, 429]);
}

#[test]
fn a_cost_that_nobody_provides_is_an_error() {
    let file = "policies: [{name: p, key: everybody, limit: 9/min, cost: rows}]";
    for (provided, expected) in [
        (Provided::default(), "unknown cost \"rows\": the program provides none (Provided::cost)"),
        (Provided::default().cost("tokens", Cost::units(2)), "unknown cost \"rows\": use tokens"),
    ] {
        let error = Config::from_yaml_with(file, "limits.yaml", &provided).unwrap_err();
        assert_eq!(error.field(), Some("policies[1].cost"));
        assert!(error.to_string().contains(expected), "{error}");
    }
    // What never fits is known when the file is read, as with a number.
    let provided = Provided::default().cost("rows", Cost::units(10));
    let error = Config::from_yaml_with(file, "limits.yaml", &provided).unwrap_err();
    assert!(error.to_string().contains("never fits"), "{error}");
}

/// A later draft may have other fields: a file says which one it wants.
#[tokio::test]
async fn a_family_is_called_after_its_draft() {
    let file =
        "{headers: {families: [draft-11]}, policies: [{name: all, key: everybody, limit: 2/min fixed}]}";
    let config = Config::from_yaml(file, "limits.yaml").unwrap();
    for policies in
        [config.policies().clone(), config.policies().clone().headers(Headers::of([Family::Draft11]))]
    {
        let answer = send(&service(&layer_under(&clock(), policies)), request(&[])).await;
        assert_eq!(only(answer.headers(), "ratelimit"), r#""all";r=1;t=60"#);
    }
    let error = Config::from_yaml(&file.replace("draft-11", "draft"), "limits.yaml").unwrap_err();
    assert!(error.to_string().contains("draft-11"), "{error}");
}
