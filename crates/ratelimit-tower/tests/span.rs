//! Failures of the store do not mark the program's own spans as failed.

mod support;

use std::fs::{self, File};

use http::HeaderName;
use ratelimit_core::RateLimiter;
use ratelimit_memory::{MemoryConfig, MemoryStore, WhenFull};
use ratelimit_tower::{KeySource, OnFailure, Policies, Policy, RateLimitLayer};
use tracing::Instrument as _;
use tracing::field::Empty;
use tracing_subscriber::filter::LevelFilter;

use support::*;

/// At this level the layer has no span, so the current one is the program's.
#[tokio::test]
async fn a_failure_that_the_layer_answers_does_not_mark_the_span_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_ansi(false)
        .with_writer(File::create(&log).unwrap())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let policies = || {
        let source = KeySource::header(HeaderName::from_static("x-user"));
        let policies = Policies::new([Policy::new("user", source, limit("9/min")).unwrap()]).unwrap();
        policies.on_failure(OnFailure::Open)
    };
    let full = || {
        let config = MemoryConfig::default().max_keys(1).when_full(WhenFull::Refuse);
        RateLimiter::without_limits(MemoryStore::with_config(config)).with_clock(clock())
    };
    for layer in [RateLimitLayer::new(full(), policies()), RateLimitLayer::in_process(full(), policies())] {
        let service = service(&layer);
        let span = tracing::info_span!("request", error.r#type = Empty, otel.status_code = Empty);
        async {
            for user in 0..200 {
                assert_eq!(statuses(&service, 1, &[("x-user", &user.to_string())]).await, [200]);
            }
            tracing::info!("answered");
        }
        .instrument(span)
        .await;
    }
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("answered").count(), 2, "{log}");
    assert!(log.contains("a request could not be counted"), "{log}");
    assert!(!log.contains("error.type") && !log.contains("ERROR"), "{log}");
}
