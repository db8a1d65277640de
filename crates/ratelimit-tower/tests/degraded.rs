//! Metrics of decisions without the store. Alone in its program: `tracing` remembers for all threads whether anybody listens,
//! so a test without a listener disturbs those that read the log.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::DebuggingRecorder;
use ratelimit_core::RateLimiter;
use ratelimit_core::layers::Resilience;
use ratelimit_memory::MemoryStore;
use ratelimit_redis::RedisStore;
use ratelimit_testbed::{Settings, Testbed};
use ratelimit_tower::{KeySource, Policies, Policy, RateLimitLayer};

use support::counters::counted;
use support::*;

/// A store that is away behind its own fallback: requests are decided as usual, and the metrics show by whom.
#[tokio::test]
async fn decisions_without_the_store_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _counting = metrics::set_default_local_recorder(&recorder);
    // A server of its own, because the test stops it.
    let server =
        Testbed::new(Settings { addresses: BTreeMap::new(), ..Settings::from_env() }).redis().await.unwrap();
    let store = RedisStore::connect(&server.patient_url()).await.unwrap();
    let store = Resilience::new(store).timeout(Duration::from_secs(9)).fallback(MemoryStore::new(), 2);
    let limiter = RateLimiter::without_limits(store).with_clock(clock());
    let by = |name: &str| Policy::new(name, KeySource::everybody(), limit("4/h")).unwrap();
    let layer = RateLimitLayer::new(limiter, Policies::new([by("one")]).unwrap());
    let service = service(&layer);
    assert_eq!(statuses(&service, 1, &[]).await, [200]);
    server.kill().await.unwrap();
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
    let refusal = send(&service, request(&[])).await;
    assert_eq!(only(refusal.headers(), "ratelimit").split(';').nth(1), Some("r=0"));
    // Several policies take another way.
    layer.policies().replace(Policies::new([by("one"), by("other").in_shadow()]).unwrap());
    assert_eq!(statuses(&service, 1, &[]).await, [429]);
    let counted = counted(&snapshotter);
    assert_eq!(counted.get("ratelimit_degraded_total"), Some(&5), "{counted:?}");
    assert_eq!(counted.keys().filter(|name| name.starts_with("ratelimit_failures_total")).count(), 0);
    let fallbacks = counted.iter().filter(|(name, _)| name.starts_with("ratelimit_fallback_total"));
    assert_eq!(fallbacks.map(|(_, number)| number).sum::<u64>(), 5);
}
