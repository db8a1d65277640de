//! Clients in Python: redis-py and grpcio.

use std::path::Path;

use ratelimit_testbed::{PYTHON_PACKAGES, Python};

use crate::server;
use crate::surroundings::testbed;

pub(crate) async fn python() -> Python {
    testbed().python(PYTHON_PACKAGES).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The lines that a script of this directory prints.
async fn run(script: &str, argument: String) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let printed = python().await.run(&script, [argument]).await.unwrap_or_else(|error| panic!("{error}"));
    printed.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_py_calls_the_commands_in_both_versions_of_the_protocol() {
    let server = server().await;
    let lines = run("redis_py.py", server.redis().port().to_string()).await;
    assert_eq!(lines.len(), 2 * 8, "{lines:#?}");
    for lines in lines.chunks(8) {
        assert_eq!(lines[0], "ping True");
        for (line, begins) in lines[1..5].iter().zip(["0 3 2 -1 ", "0 3 1 -1 ", "0 3 0 -1 ", "1 3 0 28"]) {
            assert!(line.starts_with(&format!("throttle {begins}")), "{lines:#?}");
        }
        assert_eq!(lines[5], "pipeline 0 0 0 0 0 1 1");
        assert!(lines[6].starts_with("error ") && lines[6].contains("no-such-policy"), "{lines:#?}");
        assert_eq!(lines[7], "after True");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcio_finds_the_service_by_reflection_and_is_decided_as_envoy() {
    let server = server().await;
    let lines = run("envoy_service.py", server.grpc().to_string()).await;
    let line = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {name} in {lines:#?}"))
    };
    for service in [
        "envoy.service.ratelimit.v3.RateLimitService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    ] {
        assert!(line("services").split(' ').any(|name| name == service), "{lines:#?}");
    }
    for number in 0..5 {
        assert_eq!(line(&format!("single-{number}")), format!("OK OK:{}", 4 - number));
    }
    assert_eq!(line("single-5"), "OVER_LIMIT OVER_LIMIT:0");
    for field in ["ratelimit", "ratelimit-policy", "retry-after"] {
        assert!(line("fields").split(' ').any(|name| name == field), "{lines:#?}");
    }
    assert_eq!((line("limit"), line("reset")), ("5 DAY", "True"));
    assert_eq!(line("three"), "OK OK:2");
    assert_eq!(line("three-more"), "OVER_LIMIT OVER_LIMIT:2", "all or nothing");
    assert_eq!(line("two"), "OK OK:0", "the refusal has charged nothing");
    assert!(line("both").starts_with("OVER_LIMIT OVER_LIMIT:0 "), "{lines:#?}");
    assert_eq!(line("carol"), "OK OK:0", "who was asked for with bob was not charged");
    assert!(line("unknown").starts_with("OK"), "{lines:#?}");
    assert_eq!(line("health"), "SERVING");
}
