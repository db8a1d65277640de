//! The service as its users see it: a process with an HTTP interface.

#![allow(clippy::disallowed_methods, reason = "processes and servers run on the machine's clock")]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use ratelimit_testbed::{Server, Testbed};

use crate::support::Instance;

/// Runs the program with invalid arguments, and returns the error message.
fn complaint(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_api")).args(arguments).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_plan_is_used_up_then_refused_with_the_time_to_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    // The plan of the example for a day instead of a minute: however slow the machine is, nothing comes back.
    let plan = include_str!("../api.toml").replace("\"10/min\"", "\"10/day\"");
    std::fs::write(&path, plan).unwrap();
    let service = Instance::with(&["--config", path.to_str().unwrap()]);
    for asked in 1..=10 {
        let (status, answer) = service.ask(Some("free-demo"));
        assert_eq!(status, 200, "request {asked}: {answer}");
        assert!(answer.contains("ratelimit-limit: 10\r\n"), "{answer}");
        assert!(answer.contains(&format!("ratelimit-remaining: {}\r\n", 10 - asked)), "{answer}");
    }
    let (status, answer) = service.ask(Some("free-demo"));
    assert_eq!(status, 429, "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=95_040).contains(&wait.parse::<u64>().unwrap()), "{answer}");
    assert!(
        body.contains(&format!("\"retry_after_seconds\":{wait}")) && body.contains("\"plan\":\"free\""),
        "{body}"
    );
    assert_eq!(service.ask(Some("starter-demo")).0, 200, "another key is not concerned");
    assert_eq!(service.ask(None).0, 401);
    assert_eq!(service.ask(Some("stolen")).0, 401);
    let twice = "starter-demo\r\nx-api-key: starter-demo";
    assert_eq!(service.ask(Some(twice)).0, 401, "a key that is sent twice is no second quota");
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_on_one_redis_share_the_limits() {
    share_the_limits(&Testbed::from_env().redis().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_on_one_memcached_share_the_limits() {
    share_the_limits(&Testbed::from_env().memcached().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_on_one_postgres_share_the_limits() {
    share_the_limits(&Testbed::from_env().postgres().await.unwrap()).await;
}

/// How long to wait for a condition before the test fails: far longer than a busy machine needs.
const DEADLINE: Duration = Duration::from_secs(120);

async fn share_the_limits(server: &Server) {
    let url = server.patient_url();
    let (one, other) = (Instance::start(&url), Instance::start(&url));
    // A server from the environment may remember the key from an earlier run.
    let admitted = (0..20).filter(|turn| [&one, &other][turn % 2].ask(Some("free-demo")).0 == 200).count();
    assert!(admitted <= 10, "{admitted}");
    if server.is_controlled() {
        assert_eq!(admitted, 10);
        server.kill().await.unwrap();
        let (status, answer) = one.ask(Some("starter-demo"));
        assert_eq!(status, 503, "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
        server.start().await.unwrap();
        let begun = Instant::now();
        while one.ask(Some("starter-demo")).0 != 200 {
            assert!(begun.elapsed() < DEADLINE, "it does not recover by itself");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_changed_file_is_used_while_it_runs_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let limits = |free: &str| {
        let policy = "[[policies]]\nname = \"requests\"\nkey = \"api-key:x-api-key\"";
        std::fs::write(&path, format!("{policy}\n[plans.free]\nrequests = \"{free}\"\n[plans.starter]\n"))
            .unwrap();
    };
    limits("1/day log");
    let service = Instance::with(&["--config", path.to_str().unwrap()]);
    assert_eq!(service.ask(Some("free-demo")).0, 200);
    assert_eq!(service.ask(Some("free-demo")).0, 429);
    limits("0/day log");
    std::thread::sleep(Duration::from_secs(3)); // the file is read once a second
    assert_eq!(service.ask(Some("free-demo")).0, 429);
    assert_eq!(service.ask(Some("starter-demo")).0, 200);
    limits("3/day log");
    let begun = Instant::now();
    while service.ask(Some("free-demo")).0 != 200 {
        assert!(begun.elapsed() < DEADLINE, "not used after {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(service.ask(Some("free-demo")).0, 200);
    assert_eq!(service.ask(Some("free-demo")).0, 429, "the one from before the change is still counted");
}

#[test]
fn the_program_prints_examples_and_ends_cleanly() {
    let service = Instance::start("memory:");
    let (printed, well) = service.interrupt();
    assert!(well, "{printed}");
    assert_eq!(printed.matches("curl ").count(), 3, "{printed}");
    assert!(printed.contains("requests are counted in the memory of this process"), "{printed}");
    assert!(printed.ends_with("stopped\n"), "{printed}");
}

/// How many lines the program has printed, without the event that it has read its file.
fn lines_but_the_log(said: &str) -> usize {
    said.trim_end().lines().filter(|line| !line.contains("this configuration is in force")).count()
}

#[test]
fn a_bad_store_or_address_is_one_clear_line() {
    let said = complaint(&["--store", "mongodb://localhost"]);
    assert!(said.contains("use `memory:`, `redis://`"), "{said}");
    let said = complaint(&["--store", "redis://:hunter2@127.0.0.1:1"]);
    assert!(said.contains("127.0.0.1:1") && !said.contains("hunter2"), "{said}");
    assert_eq!(lines_but_the_log(&said), 1, "{said}");
    for url in ["memcached://127.0.0.1:1", "postgres://me:hunter2@127.0.0.1:1/db", "postgres://me:hunter2@:x"]
    {
        let said = complaint(&["--store", url]);
        assert!(!said.contains("hunter2"), "{said}");
        assert_eq!(lines_but_the_log(&said), 1, "{said}");
    }
    let said = complaint(&["--config", "missing.toml"]);
    assert!(said.contains("missing.toml: cannot be read"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let said = complaint(&["--listen", &taken.local_addr().unwrap().to_string()]);
    assert!(said.contains("is another instance running?"), "{said}");
}
