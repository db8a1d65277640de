//! What is logged and counted, and that a key never is.

mod support;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use http::header::HeaderName;
use metrics_util::debugging::DebuggingRecorder;
use ratelimit_core::RateLimiter;
use ratelimit_redis::RedisStore;
use ratelimit_testbed::{Settings, Testbed};
use ratelimit_tower::{ClientList, KeySource, Missing, OnFailure, Policies, Policy, RateLimitLayer};

use support::counters::counted;
use support::*;

/// The log output.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const SECRET: &str = "hunter2-the-key-of-ann";

/// The events and metrics of requests that are admitted, refused, shadowed, not identified and not counted.
#[tokio::test]
async fn requests_are_counted_and_logged_without_their_keys() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _counting = metrics::set_default_local_recorder(&recorder);

    let by = |name: &str, limits: &str| {
        let source = KeySource::api_key(HeaderName::from_static("x-api-key"));
        Policy::new(name, source, limit(limits)).unwrap().when_missing(Missing::Refuse)
    };
    let policies = Policies::new([by("real", "3/min"), by("trial", "1/min").in_shadow()]).unwrap();
    let layer = layer_under(&clock(), policies);
    let service_in_memory = service(&layer);
    assert_eq!(statuses(&service_in_memory, 5, &[("x-api-key", SECRET)]).await, [200, 200, 200, 429, 429]);
    assert_eq!(statuses(&service_in_memory, 1, &[]).await, [400]);
    let by_extension =
        || Policy::new("x", KeySource::extension(|s: &String| s.clone()), limit("1/s")).unwrap();
    layer.policies().replace(Policies::new([by_extension()]).unwrap());
    assert_eq!(statuses(&service_in_memory, 1, &[]).await, [500]);
    layer.policies().replace(Policies::new([by_extension().when_missing(Missing::Exempt)]).unwrap());
    assert_eq!(statuses(&service_in_memory, 5, &[]).await, [200; 5]);
    let friends = ClientList::new(KeySource::extension(|s: &String| s.clone()), ["friend"]).unwrap();
    layer
        .policies()
        .replace(Policies::new([by_extension().when_missing(Missing::Exempt)]).unwrap().allow(friends));
    assert_eq!(statuses(&service_in_memory, 1, &[]).await, [200]);

    // A server of its own, because the test stops it.
    let server =
        Testbed::new(Settings { addresses: BTreeMap::new(), ..Settings::from_env() }).redis().await.unwrap();
    let store = RedisStore::connect(&server.patient_url()).await.unwrap();
    let limiter = RateLimiter::without_limits(store).with_clock(clock());
    let policies = Policies::new([by("remote", "9/min")]).unwrap().on_failure(OnFailure::Open);
    let layer = RateLimitLayer::new(limiter, policies);
    let service = service(&layer);
    assert_eq!(statuses(&service, 1, &[("x-api-key", SECRET)]).await, [200]);
    server.kill().await.unwrap();
    assert_eq!(statuses(&service, 50, &[("x-api-key", SECRET)]).await, [200; 50]);

    let counted = counted(&snapshotter);
    let expected = [
        ("ratelimit_admitted_total", 4),
        ("ratelimit_checks_total", 56),
        ("ratelimit_failures_total answer=open", 50),
        ("ratelimit_policy_checks_total policy=real", 5),
        ("ratelimit_policy_checks_total policy=remote", 51),
        ("ratelimit_policy_checks_total policy=trial", 5),
        ("ratelimit_refused_total policy=real shadow=false", 2),
        ("ratelimit_refused_total policy=trial shadow=true", 2),
        ("ratelimit_store_errors_total store=redis error.type=unreachable", 50),
        ("ratelimit_store_seconds", 59),
        ("ratelimit_unidentified_total policy=allow", 1),
        ("ratelimit_unidentified_total policy=real", 1),
        ("ratelimit_unidentified_total policy=x", 1),
    ];
    let expected: BTreeMap<_, u64> =
        expected.into_iter().map(|(name, number)| (name.to_owned(), number)).collect();
    assert_eq!(counted, expected);

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for event in [
        " WARN rate_limit{error.type=\"unreachable\" otel.status_code=\"ERROR\"}: ratelimit_tower::observe: a request could not be counted",
        "ERROR ratelimit_tower::observe: a request cannot be counted: the extension is missing",
        "DEBUG ratelimit_tower::observe: a policy does not apply to a request: the extension is missing",
        "DEBUG ratelimit_tower::observe: a list of clients does not apply to a request: the extension is missing",
        "INFO ratelimit_tower::observe: a policy in shadow would have refused a request",
        "DEBUG ratelimit_tower::observe: refused a request",
        "rate_limit",
    ] {
        assert!(log.contains(event), "{event} is not in:\n{log}");
    }
    assert!(!log.contains("policy=\"allow\""), "{log}");
    assert!(log.matches("a policy does not apply").count() < 5, "{log}");
    // Fifty failures do not produce fifty lines, but one per second, and they took no more than a few seconds.
    assert!(log.matches("a request could not be counted").count() < 10, "{log}");
    assert!(!log.contains("hunter2"), "{log}");
    assert!(!format!("{counted:?}").contains("hunter2"));
}
