//! What the layers count.

mod common;

use std::collections::BTreeMap;

use common::{AWAY, MapStore, Mood, Unsteady};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use ratelimit_core::layers::{Breaker, BreakerConfig, Divided, Fallback};
use ratelimit_core::{Limit, ManualClock, RateLimiter, Timestamp};

#[tokio::test]
async fn calls_errors_changes_of_the_breaker_and_fallbacks_are_counted_without_keys() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let (store, clock) = (Unsteady::default(), ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let breaker = Breaker::new(store.clone(), BreakerConfig::default().failures(2)).with_clock(clock.clone());
    let stack = Fallback::new(breaker, Divided::new(MapStore::default(), 2));
    let limiter = RateLimiter::new(stack, "9/h".parse::<Limit>().unwrap()).with_clock(clock);
    let decision = limiter.check("hunter2").await.unwrap();
    limiter.refund(&decision).await.unwrap();
    limiter.reset("hunter2").await.unwrap();
    limiter.check_many(["hunter2"; 2]).await;
    store.set(AWAY);
    for _ in 0..5 {
        assert!(limiter.check("hunter2").await.unwrap().degraded());
    }
    for mood in [AWAY, Mood::Answers] {
        store.set(mood);
        limiter.clock().advance(std::time::Duration::from_secs(9));
        limiter.check("hunter2").await.unwrap();
    }

    let counted = counted(&snapshotter);
    let expected = [
        ("ratelimit_breaker_changes_total to=closed", 1),
        ("ratelimit_breaker_changes_total to=open", 1),
        ("ratelimit_breaker_changes_total to=open_again", 1),
        ("ratelimit_fallback_total error.type=circuit_open", 3),
        ("ratelimit_fallback_total error.type=unreachable", 3),
        ("ratelimit_store_call_errors_total store=unsteady error.type=unreachable", 3),
        ("ratelimit_store_call_seconds call=claim", 5),
        ("ratelimit_store_call_seconds call=claim_many", 1),
        ("ratelimit_store_call_seconds call=refund", 1),
        ("ratelimit_store_call_seconds call=reset", 1),
    ];
    assert_eq!(counted, expected.into_iter().map(|(name, number)| (name.to_owned(), number)).collect());
}

/// So that the increase of a counter shows when a breaker opens for the first time.
#[tokio::test]
async fn a_breaker_that_has_not_changed_exports_zeros() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let _breaker = Breaker::new(MapStore::default(), BreakerConfig::default());
    let changes = ["closed", "open", "open_again"];
    let expected = changes.map(|to| (format!("ratelimit_breaker_changes_total to={to}"), 0));
    assert_eq!(counted(&snapshotter), expected.into());
}

/// Each metric with its labels; a histogram as its number of values.
fn counted(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let (_, key) = key.into_parts();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let number = match value {
            DebugValue::Counter(number) => number,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => 0,
        };
        counted.insert(format!("{} {}", key.name(), labels.join(" ")), number);
    }
    counted
}
