//! Layers that are given limits instead of policies.

mod support;

use std::sync::Arc;

use ratelimit_core::{Limits, ManualClock, RateLimiter};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{RateLimitLayer, SharedPolicies};

use support::*;

fn on(
    store: &Arc<MemoryStore>,
    clock: &ManualClock,
    limits: impl Into<SharedPolicies>,
) -> RateLimitLayer<Arc<MemoryStore>, ManualClock> {
    let limiter = RateLimiter::without_limits(store.clone()).with_clock(clock.clone());
    RateLimitLayer::in_process(limiter, limits)
}

#[tokio::test]
async fn different_limits_on_one_store_have_different_counts() {
    let (store, clock) = (Arc::new(MemoryStore::new()), clock());
    let a = service(&on(&store, &clock, limit("2/min")));
    let b = service(&on(&store, &clock, limit("5/min")));
    assert_eq!(statuses(&a, 3, &[]).await, [200, 200, 429]);
    assert_eq!(statuses(&b, 6, &[]).await, [200, 200, 200, 200, 200, 429]);
    let several: Limits = "2/min; 9/h".parse().unwrap();
    let c = service(&on(&store, &clock, several));
    assert_eq!(statuses(&c, 3, &[]).await, [200, 200, 429]);
}

/// Instances of one service have the same limit, and have to count together.
#[tokio::test]
async fn the_same_limit_has_one_count_and_the_usual_name() {
    let (store, clock) = (Arc::new(MemoryStore::new()), clock());
    let instances = ["2/min", "2/min", "2 per minute"].map(|text| service(&on(&store, &clock, limit(text))));
    for (instance, expected) in instances.iter().zip([200, 200, 429]) {
        let answer = send(instance, request(&[])).await;
        assert_eq!(answer.status(), expected);
        assert_eq!(only(answer.headers(), "ratelimit-policy"), r#""default";q=2;w=60"#);
    }
}
