//! Metrics for Prometheus. No label contains a key.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// In seconds: the store's limit is 15 ms by default.
const BUCKETS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 1.0];

/// The metrics of this process. The first call begins to count.
pub(crate) fn handle() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let begin = || {
        let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).ok()?.build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).ok()?;
        for what in ["domain", "descriptor"] {
            metrics::counter!("ratelimit_server_unmatched_total", "what" => what).increment(0);
        }
        for door in ["http", "grpc", "redis"] {
            metrics::counter!("ratelimit_server_bad_requests_total", "door" => door).increment(0);
        }
        Some(handle)
    };
    HANDLE.get_or_init(begin).clone()
}

/// Removes what is no longer needed from the metrics' memory, forever.
pub(crate) async fn tidy() {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        if let Some(handle) = handle() {
            handle.run_upkeep();
        }
    }
}

/// Counts domains and descriptors that no policy is for: they were admitted.
pub(crate) fn unmatched(what: &'static str, count: u64) {
    if count > 0 {
        metrics::counter!("ratelimit_server_unmatched_total", "what" => what).increment(count);
    }
}

/// Counts a question that could not be understood.
pub(crate) fn bad_request(door: &'static str) {
    metrics::counter!("ratelimit_server_bad_requests_total", "door" => door).increment(1);
}
