//! Files in use: their settings apply to requests, and a change of the file keeps the counts of what did not change.

use std::error::Error as _;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use proptest::prelude::*;
use ratelimit_memory::{ManualClock, MemoryStore, RateLimiter, Timestamp};
use ratelimit_tower::config::{Config, ConfigError, ConfigFile, Reloaded};
use ratelimit_tower::{PeerAddress, RateLimitLayer};
use tower_service::Service;

/// A service under the policies of a file.
struct Limited {
    file: ConfigFile,
    path: PathBuf,
    app: Router,
    clock: ManualClock,
    _folder: tempfile::TempDir,
}

impl Limited {
    fn by(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let file = ConfigFile::open(&path).unwrap();
        let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
        let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(clock.clone());
        let layer = RateLimitLayer::in_process(limiter, file.policies());
        let answer = |request: Request<Body>| async move {
            if request.headers().contains_key("wrong-password") {
                StatusCode::UNAUTHORIZED
            } else {
                StatusCode::OK
            }
        };
        let app = Router::new().fallback(answer).layer(layer);
        Self { file, path, app, clock, _folder: folder }
    }

    async fn send(&self, request: http::request::Builder) -> (StatusCode, HeaderMap) {
        let mut request = request.body(Body::empty()).unwrap();
        if request.extensions().get::<PeerAddress>().is_none() {
            request.extensions_mut().insert(PeerAddress("203.0.113.5".parse().unwrap()));
        }
        let response = self.app.clone().call(request).await.unwrap();
        (response.status(), response.headers().clone())
    }

    async fn status(&self, path: &str) -> u16 {
        self.send(Request::get(path)).await.0.as_u16()
    }

    fn rewrite(&self, text: &str) -> Result<Reloaded, ConfigError> {
        fs::write(&self.path, text).unwrap();
        self.file.reload()
    }
}

fn from(address: &str) -> http::request::Builder {
    Request::get("/").extension(PeerAddress(address.parse::<IpAddr>().unwrap()))
}

const TWO: &str = r#"
[[policies]]
name = "kept"
key = "everybody"
limit = "3/min"
routes = ["/kept"]

[[policies]]
name = "changed"
key = "everybody"
limit = "3/min"
routes = ["/changed"]
"#;

#[tokio::test]
async fn a_changed_file_keeps_the_counts_of_limits_that_did_not_change() {
    let limited = Limited::by("limits.toml", TWO);
    for path in ["/kept", "/changed"] {
        assert_eq!((limited.status(path).await, limited.status(path).await), (200, 200), "{path}");
    }
    assert_eq!(limited.file.reload().unwrap(), Reloaded::Unchanged);

    // Increased: more is available immediately, and the count is kept. A new first policy changes the others' indices.
    let new = "[[policies]]\nname = \"new\"\nkey = \"everybody\"\nlimit = \"1/min\"\nroutes = [\"/new\"]\n";
    let (kept, changed) = TWO.split_at(TWO.find("[[policies]]\nname = \"changed\"").unwrap());
    let raised = format!("{new}{kept}{}", changed.replace("3/min", "5/min"));
    assert_eq!(limited.rewrite(&raised).unwrap(), Reloaded::Replaced);
    assert_eq!((limited.status("/kept").await, limited.status("/kept").await), (200, 429));
    assert_eq!((limited.status("/new").await, limited.status("/new").await), (200, 429));
    for expected in [200, 200, 200, 429] {
        assert_eq!(limited.status("/changed").await, expected);
    }

    // Decreased: nothing remains until enough time has passed. Removed: no limit.
    let lowered = kept.replace("3/min", "2/min");
    assert_eq!(limited.rewrite(&lowered).unwrap(), Reloaded::Replaced);
    assert_eq!(limited.status("/kept").await, 429);
    assert_eq!(limited.status("/changed").await, 200);
    limited.clock.advance(Duration::from_secs(120));
    for expected in [200, 200, 429] {
        assert_eq!(limited.status("/kept").await, expected);
    }

    // Restored: what was counted meanwhile is still known.
    assert_eq!(limited.rewrite(TWO).unwrap(), Reloaded::Replaced);
    assert_eq!((limited.status("/kept").await, limited.status("/kept").await), (200, 429));
    assert_eq!((limited.file.replaced(), limited.file.failures()), (3, 0));
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_counted_once() {
    let limited = Limited::by("limits.yaml", "policies: [{name: a, key: everybody, limit: 2/min}]");
    assert_eq!(limited.status("/").await, 200);
    let error =
        limited.rewrite("policies:\n  - name: a\n    key: everybody\n    limit: 1/0min\n").unwrap_err();
    assert!(error.to_string().contains("limits.yaml:4: policies[1].limit: the limit \"1/0min\""), "{error}");
    assert_eq!((error.line(), error.field()), (Some(4), Some("policies[1].limit")));
    assert_eq!(limited.file.reload().unwrap(), Reloaded::Unchanged, "the same content is not reported again");
    assert_eq!(limited.rewrite("").unwrap_err().line(), Some(1), "an empty file is no wish for no limits");
    fs::write(&limited.path, b"policies: []\n# \xff").unwrap();
    assert!(limited.file.reload().unwrap_err().to_string().ends_with("limits.yaml:2: invalid UTF-8"));
    fs::remove_file(&limited.path).unwrap();
    assert!(limited.file.reload().unwrap_err().to_string().contains("limits.yaml: cannot be read"));
    assert_eq!(limited.file.reload().unwrap(), Reloaded::Unchanged);
    fs::write(&limited.path, "x".repeat((1 << 20) + 1)).unwrap();
    assert!(limited.file.reload().unwrap_err().to_string().contains("larger than 1 MiB"));
    assert_eq!((limited.file.replaced(), limited.file.failures()), (0, 5));
    // Meanwhile the old policies kept counting.
    assert_eq!((limited.status("/").await, limited.status("/").await), (200, 429));
    assert_eq!(
        limited.rewrite("policies: [{name: a, key: everybody, limit: 3/min}]").unwrap(),
        Reloaded::Replaced
    );
    assert_eq!((limited.status("/").await, limited.status("/").await), (200, 429));
}

#[tokio::test]
async fn a_watched_file_is_used_once_its_content_is_stable() {
    let limited = Limited::by("limits.toml", TWO);
    let file = limited.file.clone();
    let watching = tokio::spawn(async move { file.watch(Duration::from_millis(5)).await });
    let half = TWO.split("[[policies]]\nname = \"changed\"").next().unwrap();
    fs::write(&limited.path, half).unwrap();
    until(|| limited.file.replaced() > 0).await;
    assert_eq!(limited.file.policies().current().each().len(), 1);
    fs::write(&limited.path, "broken").unwrap();
    until(|| limited.file.failures() > 0).await;
    fs::write(&limited.path, TWO).unwrap();
    until(|| limited.file.replaced() > 1).await;
    assert_eq!(limited.file.policies().current().each().len(), 2);
    assert_eq!(limited.file.failures(), 1);
    watching.abort();
}

/// Waits for an event in real time; a minute is long enough on any machine.
async fn until(done: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not happen");
}

#[test]
fn a_file_that_cannot_be_used_is_an_error_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expected) in [
        ("missing.toml", "missing.toml: cannot be read: No such file"),
        ("limits.json", "limits.json: cannot be read: the file name must end in .toml, .yaml or .yml"),
        ("limits", "limits: cannot be read: the file name must end"),
        ("limits.toml", "limits.toml:1: missing field `policies`"),
    ] {
        let path = folder.path().join(name);
        if name != "missing.toml" {
            fs::write(&path, "").unwrap();
        }
        let error = ConfigFile::open(path).unwrap_err();
        // Its text would be printed twice.
        assert!(error.to_string().contains(expected) && error.source().is_none(), "{error}");
    }
}

#[tokio::test]
async fn routes_exemptions_and_headers_apply_to_requests() {
    let limited = Limited::by(
        "limits.toml",
        r#"
        exempt = ["GET /health"]
        [headers]
        families = ["ratelimit"]
        [[policies]]
        name = "writes"
        key = "everybody"
        limit = "1/min"
        routes = ["POST /items", "/health"]
        "#,
    );
    let (status, headers) = limited.send(Request::post("/items")).await;
    assert_eq!(
        (status.as_u16(), &headers["ratelimit-limit"], &headers["ratelimit-remaining"]),
        (200, &"1".parse().unwrap(), &"0".parse().unwrap())
    );
    assert_eq!(limited.send(Request::post("/items?x")).await.0, 429);
    assert_eq!(limited.send(Request::post("/health")).await.0, 429);
    for _ in 0..3 {
        assert_eq!(limited.status("/items").await, 200);
        assert_eq!(limited.status("/health").await, 200);
    }
}

#[tokio::test]
async fn only_failed_log_ins_are_counted() {
    let limited = Limited::by(
        "limits.toml",
        "[[policies]]\nname = \"log-in\"\nkey = \"address\"\nlimit = \"2/min\"\ncount_only = [401]",
    );
    let wrong = || Request::get("/").header("wrong-password", "1");
    for _ in 0..3 {
        assert_eq!(limited.status("/").await, 200);
    }
    assert_eq!(limited.send(wrong()).await.0, 401);
    assert_eq!(limited.send(wrong()).await.0, 401);
    assert_eq!(limited.send(wrong()).await.0, 429);
    assert_eq!(limited.status("/").await, 429);
}

#[tokio::test]
async fn failed_requests_are_refunded() {
    let limited = Limited::by(
        "limits.toml",
        "[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"1/min\"\nrefund = [\"4xx\"]",
    );
    for _ in 0..3 {
        assert_eq!(limited.send(Request::get("/").header("wrong-password", "1")).await.0, 401);
    }
    assert_eq!((limited.status("/").await, limited.status("/").await), (200, 429));
}

#[tokio::test]
async fn plans_change_the_limits_of_a_policy_and_keep_the_count() {
    let limited = Limited::by(
        "limits.toml",
        r#"
        [[policies]]
        name = "requests"
        key = "api-key:x-api-key"
        [plans.free]
        requests = "2/min"
        [plans.paid]
        requests = "4/min"
        "#,
    );
    let with =
        |plan: &str| Request::get("/").header("x-api-key", "k").extension(limited.file.plan(plan).unwrap());
    for _ in 0..3 {
        assert_eq!(
            limited.send(Request::get("/").header("x-api-key", "k")).await.0,
            200,
            "no plan, no limit"
        );
    }
    assert_eq!(limited.send(with("free")).await.0, 200);
    let (status, headers) = limited.send(with("free")).await;
    assert_eq!(status, 200);
    assert_eq!(headers["ratelimit-policy"], "\"requests.free\";q=2;w=60");
    assert_eq!(limited.send(with("free")).await.0, 429);
    for expected in [200, 200, 429] {
        assert_eq!(limited.send(with("paid")).await.0, expected, "two of four were used");
    }
    assert_eq!(limited.file.plan("gold"), None);
}

#[tokio::test]
async fn requests_are_counted_by_the_network_of_the_client() {
    let limited = Limited::by(
        "limits.yaml",
        "client: {trusted_proxies: [10.0.0.0/8]}\npolicies: [{name: a, key: address, limit: 1/min}]",
    );
    assert_eq!(limited.send(from("10.0.0.1").header("x-forwarded-for", "1.1.1.1, 192.0.2.1")).await.0, 200);
    for spoofed in ["2.2.2.2, 192.0.2.1", "192.0.2.1", "unknown, ::ffff:192.0.2.1, 10.0.0.9"] {
        assert_eq!(
            limited.send(from("10.0.0.1").header("x-forwarded-for", spoofed)).await.0,
            429,
            "{spoofed}"
        );
    }
    assert_eq!(limited.send(from("2001:db8::1").header("x-forwarded-for", "192.0.2.2")).await.0, 200);
    assert_eq!(limited.send(from("2001:db8::2").header("x-forwarded-for", "192.0.2.3")).await.0, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reloading_under_load_admits_exactly_the_limit() {
    let limited = Arc::new(Limited::by("limits.toml", &TWO.replace("3/min", "500/min")));
    let askers: Vec<_> = (0..4)
        .map(|_| {
            let limited = limited.clone();
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..400 {
                    admitted += u32::from(limited.status("/kept").await == 200);
                    tokio::task::yield_now().await;
                }
                admitted
            })
        })
        .collect();
    let mut turn = 1;
    while !askers.iter().all(tokio::task::JoinHandle::is_finished) || turn < 20 {
        turn += 1;
        // A policy that does not apply to these requests changes its limit, or breaks the file.
        let changed = TWO.replacen("3/min", "500/min", 1).replace("3/min", &format!("{turn}/min"));
        let changed = if turn % 3 == 0 { format!("{changed}limit = 7\n") } else { changed };
        assert_eq!(limited.rewrite(&changed).is_err(), turn % 3 == 0);
        tokio::task::yield_now().await;
    }
    let mut admitted = 0;
    for asker in askers {
        admitted += asker.await.unwrap();
    }
    assert_eq!(admitted, 500, "of 1600 after {turn} changes");
    assert!(limited.file.replaced() > 10 && limited.file.failures() > 5);
}

/// Returns the log and the metrics of `during`.
#[cfg(all(feature = "metrics", feature = "tracing"))]
fn observed(during: impl FnOnce()) -> (String, String) {
    use std::io;
    use std::sync::Mutex;

    use metrics_util::debugging::DebuggingRecorder;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    // Without a subscriber for all threads, another test that logs at this moment can turn the event off for this one.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let recorder = DebuggingRecorder::new();
    let counts = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || tracing::subscriber::with_default(subscriber, during));
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    (log, format!("{:?}", counts.snapshot().into_vec()))
}

#[cfg(all(feature = "metrics", feature = "tracing"))]
#[test]
fn reloads_are_logged_and_counted() {
    let limited = Limited::by("limits.toml", TWO);
    let (log, counts) = observed(|| _ = limited.rewrite("policies = []").unwrap_err());
    assert!(log.contains("WARN") && log.contains("the policies stay as they are"), "{log}");
    assert!(log.contains("limits.toml:1: policies: there is no policy"), "{log}");
    assert!(counts.contains("ratelimit_config_reloads_total") && counts.contains("failed"), "{counts}");
    let (log, counts) = observed(|| _ = limited.rewrite(TWO).unwrap());
    assert!(log.contains("INFO") && log.contains("the policies were replaced"), "{log}");
    assert!(counts.contains("ratelimit_config_reloads_total") && counts.contains("replaced"), "{counts}");
    let (log, counts) = observed(|| _ = limited.file.reload().unwrap());
    assert_eq!((log.as_str(), counts.as_str()), ("", "[]"));
}

/// From a counter that begins at one, Prometheus does not see an increase.
#[cfg(all(feature = "metrics", feature = "tracing"))]
#[test]
fn counts_of_reloads_begin_at_zero() {
    let (_, counts) = observed(|| _ = Limited::by("limits.toml", TWO));
    assert!(counts.contains("failed") && counts.contains("replaced"), "{counts}");
    assert_eq!(counts.matches("Counter(0)").count(), 2, "{counts}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_text_is_valid_or_an_error_with_a_line(
        at in 0_usize..TWO.len(), cut in 0_usize..40, insert in "[\\[\\]{}\"'=:&*,.#0-9a-z \n\t\\\\é-]{0,12}", any in "\\PC{0,60}",
    ) {
        let yaml = "policies:\n  - {name: a, key: address, limit: 1/s}\nplans: {free: {a: 2/s}}\n";
        for (text, is_yaml) in [(TWO, false), (yaml, true), (any.as_str(), false), (any.as_str(), true)] {
            let at = text.floor_char_boundary(at.min(text.len()));
            let end = text.floor_char_boundary((at + cut).min(text.len()));
            let text = format!("{}{insert}{}", &text[..at], &text[end..]);
            let read = if is_yaml { Config::from_yaml(&text, "f") } else { Config::from_toml(&text, "f") };
            if let Err(error) = read {
                let line = error.line().expect("a line");
                prop_assert!((1..=text.lines().count() + 1).contains(&line), "{}\n{}", error, text);
                prop_assert!(error.to_string().starts_with(&format!("f:{line}: ")), "{}", error);
            }
        }
    }
}

/// Of the body of axum, which is known with its feature: a reloaded file needs no change of the program.
#[cfg(feature = "axum")]
#[tokio::test]
async fn a_file_can_begin_to_settle() {
    use http_body_util::BodyExt as _;

    let text = "[[policies]]\nname = \"a\"\nkey = \"everybody\"\nlimit = \"10/day\"\ncost = 4\n";
    let limited = Limited::by("limits.toml", text);
    let app = Router::new().fallback(|| async { "seven b" });
    let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(limited.clock.clone());
    let mut app = app.layer(RateLimitLayer::in_process(limiter, limited.file.policies()));
    let mut used = 0;
    for (settle, units) in [("", 4), ("settle = \"bytes:3\"", 3), ("", 4)] {
        limited.rewrite(&format!("{text}{settle}")).unwrap();
        let response = app.call(Request::new(Body::empty())).await.unwrap();
        let remaining = format!("\"a\";r={};", 10_u64.saturating_sub(used + 4));
        assert_eq!(response.status(), if used + 4 > 10 { 429 } else { 200 }, "{settle}");
        if response.status() == 200 {
            assert!(
                response.headers()["ratelimit"].to_str().unwrap().starts_with(&remaining),
                "{response:?}"
            );
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "seven b");
            used += units;
        }
    }
    assert_eq!(used, 7);
}

#[tokio::test]
async fn an_unlimited_plan_is_not_counted_and_a_limit_of_zero_admits_nothing() {
    let limited = Limited::by(
        "limits.toml",
        r#"
policies = [{ name = "a", key = "everybody", limit = "1/min" }, { name = "b", key = "everybody" }]

[plans]
free = { b = "0/s" }
partner = { a = "unlimited", b = "unlimited" }
"#,
    );
    let with = |plan: &str| Request::get("/").extension(limited.file.plan(plan).unwrap());
    for _ in 0..3 {
        let (status, headers) = limited.send(with("partner")).await;
        assert_eq!((status, headers.get("ratelimit")), (StatusCode::OK, None));
    }
    let (status, headers) = limited.send(with("free")).await;
    assert_eq!((status, headers.get("retry-after")), (StatusCode::TOO_MANY_REQUESTS, None));
    assert_eq!([limited.status("/").await, limited.status("/").await], [200, 429]);
    let config = limited.file.config();
    assert_eq!(config.limits("a", Some("partner")), None);
    assert_eq!(config.limits("a", Some("free")).map(ToString::to_string).as_deref(), Some("1/min"));
}
