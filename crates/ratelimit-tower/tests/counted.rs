//! What the metrics count. What is logged has a test of its own, because events are throttled for the whole process.

mod support;

use http::HeaderName;
use metrics_util::debugging::DebuggingRecorder;
use ratelimit_core::{ManualClock, RateLimiter};
use ratelimit_memory::{MemoryConfig, MemoryStore, WhenFull};
use ratelimit_tower::{Fallback, KeySource, OnFailure, Plan, Policies, Policy, RateLimitLayer};

use support::counters::counted;
use support::*;

/// Each policy in shadow shows what it would refuse by itself. Together they take one call.
#[tokio::test]
async fn policies_in_shadow_do_not_hide_refusals_of_each_other() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let policy = |name: &str, limits: &str| Policy::new(name, KeySource::everybody(), limit(limits)).unwrap();
    let policies = || [policy("small", "1/min").in_shadow(), policy("large", "10/min").in_shadow()];
    for layer in [
        layer_under(&clock(), Policies::new(policies()).unwrap()),
        RateLimitLayer::new(limiter(&clock()), Policies::new(policies()).unwrap()),
    ] {
        let service = service(&layer);
        assert_eq!(statuses(&service, 60, &[]).await, [200; 60]);
        let counted = counted(&recorder.snapshotter());
        assert_eq!(counted["ratelimit_refused_total policy=small shadow=true"], 59);
        assert_eq!(counted["ratelimit_refused_total policy=large shadow=true"], 50);
        assert_eq!(counted["ratelimit_store_seconds"], 60);
        // Each has charged what it would have admitted.
        layer.policies().replace(Policies::new([policy("large", "11/min")]).unwrap());
        assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
        recorder.snapshotter().snapshot();
    }
}

#[tokio::test]
async fn a_plan_that_holds_permits_counts_a_missing_key_once() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let held = Plan::new("held", limit("5 at once")).unwrap();
    let source = KeySource::header(HeaderName::from_static("x-user"));
    let policy = Policy::new("user", source, limit("9/min")).unwrap().plans(move |_| Some(held.clone()));
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
    assert_eq!(statuses(&service, 1, &[]).await, [200]);
    let counted = counted(&recorder.snapshotter());
    assert_eq!(counted["ratelimit_unidentified_total policy=user"], 1);
}

/// A limiter whose store refuses new keys beyond the first few.
fn full() -> RateLimiter<MemoryStore, ManualClock> {
    let config = MemoryConfig::default().max_keys(1).when_full(WhenFull::Refuse);
    RateLimiter::without_limits(MemoryStore::with_config(config)).with_clock(clock())
}

#[tokio::test]
async fn what_no_decision_admits_is_not_counted_as_admitted() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let source = KeySource::header(HeaderName::from_static("x-user"));
    let policies = Policies::new([Policy::new("user", source, limit("9/min")).unwrap()]).unwrap();
    let service = service(&RateLimitLayer::new(full(), policies.in_shadow()));
    for user in 0..200 {
        assert_eq!(statuses(&service, 1, &[("x-user", &user.to_string())]).await, [200]);
    }
    let counted = counted(&recorder.snapshotter());
    let failed = counted["ratelimit_failures_total answer=shadow"];
    assert!(failed > 0, "{counted:?}");
    assert_eq!(counted["ratelimit_admitted_total"], 200 - failed);
}

/// The metrics of the store are those of the store that is down.
#[tokio::test]
async fn a_fallback_is_not_measured_as_the_store() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let source = KeySource::header(HeaderName::from_static("x-user"));
    let policies = Policies::new([Policy::new("user", source, limit("9/min")).unwrap()]).unwrap();
    let policies = policies.on_failure(OnFailure::Fallback(Fallback::new(full())));
    let service = service(&RateLimitLayer::new(full(), policies));
    let users: Vec<String> = (0..200).map(|user| user.to_string()).collect();
    let mut seen = Vec::new();
    for user in &users {
        seen.extend(statuses(&service, 1, &[("x-user", user)]).await);
    }
    let (counted, failed) =
        (counted(&recorder.snapshotter()), |status| seen.iter().filter(|seen| **seen == status).count());
    assert!(failed(503) > 0, "the fallback fails as well: {seen:?}");
    assert_eq!(counted["ratelimit_store_seconds"], 200);
    let failures = counted["ratelimit_failures_total answer=fallback"];
    assert_eq!(counted["ratelimit_store_errors_total store=memory error.type=full"], failures);
}
