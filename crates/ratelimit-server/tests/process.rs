//! The command: its options, what it prints, and its end.

mod support;

use std::process::Output;

use serde_json::json;
use support::process::{Running, command};
use support::{POLICIES, descriptor, request, should_with};

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_file_is_checked_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(
        &path,
        POLICIES.replace("name = \"user\"", "shadow = true\nsettle = \"handler\"\nname = \"user\""),
    )
    .unwrap();
    let output = command().arg("--check").arg(&path).output().unwrap();
    let (out, error) = text(&output);
    assert!(output.status.success(), "{error}");
    for line in [
        "policy user, in shadow",
        "  counts by user",
        "  limits: 3/d log",
        "  with plan paid: 100/d log",
        "  with plan partner: none, so it does not apply",
        "  charged at once, since this server sees no response: refund or settle by receipt",
        "policy login",
        "  descriptors with exactly: tenant, route=login",
        "  not checked by /v1/auth: its key names entries of descriptors",
    ] {
        assert!(out.lines().any(|printed| printed == line), "{line} is not in\n{out}");
    }
    assert_eq!(out.lines().filter(|line| line.starts_with("  with plan")).count(), 2, "{out}");
    std::fs::write(&path, POLICIES.replace("3/day log", "3 per fortnight")).unwrap();
    let output = command().arg("--check").arg(&path).output().unwrap();
    let (out, error) = text(&output);
    assert_eq!((output.status.code(), &*out), (Some(1), ""));
    assert!(error.contains("limits.toml:8: policies[1].limit"), "{error}");
    let output = command().args(["--check", "nowhere.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_example_is_valid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/server/server.toml");
    let output = command().args(["--check", path]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output).1);
}

#[test]
fn wrong_options_say_what_to_write() {
    for (options, expected) in [
        (&["--http", "8080"][..], "127.0.0.1:8080"),
        (&["--timeout", "15"], "15ms"),
        (&["--counting", "guessed"], "leased"),
        (&["--instances", "0"], "1.."),
        (&["--receipt-key", "short"], "32 random characters"),
        (&["--domain", "=file"], "NAME=FILE"),
        (&["--tls-certificate", "nowhere.pem"], "--tls-key"),
        (&["--tls-certificate", "nowhere.pem", "--tls-key", "nowhere.key"], "--tls-certificate: nowhere.pem"),
        (&["--config", "nowhere.toml"], "nowhere.toml: cannot be read"),
    ] {
        let output = command().args(options).output().unwrap();
        assert!(!output.status.success());
        assert!(text(&output).1.contains(expected), "{options:?}: {}", text(&output).1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_in_the_environment_and_a_signal_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, POLICIES).unwrap();
    let mut command = command();
    command
        .env("RATELIMIT_CONFIG", &path)
        .env("RATELIMIT_HTTP", "127.0.0.1:0")
        .env("RATELIMIT_REDIS", "127.0.0.1:0");
    command.env("RATELIMIT_GRPC", "off").env("RATELIMIT_ALLOW_LIMITS", "true");
    let mut running = Running::start(&mut command);
    assert!(running.1.iter().any(|line| line.contains("CL.THROTTLE")), "{:?}", running.1);
    assert!(!running.1.iter().any(|line| line.starts_with("gRPC")), "{:?}", running.1);
    let http = running.http();
    assert_eq!(http.statuses(1, &json!({ "policy": "user", "key": "7" })).await, [200]);
    assert_eq!(http.statuses(1, &json!({ "limits": "1/day", "key": "7" })).await, [200]);
    assert!(running.terminate(), "it ends without an error");
    let log = running.log();
    assert!(log.contains("this configuration is in force"), "{log}");
}

/// The keys of clients and the password of the store are in no line of the log.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_contains_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, POLICIES).unwrap();
    let mut command = command();
    command.args(["--http=127.0.0.1:0", "--grpc=off", "--redis=off", "--allow-limits", "--store"]);
    // Nobody listens there.
    command.arg("redis://user:a-pass-word@127.0.0.1:1").arg("--config").arg(&path);
    let mut running = Running::start(&mut command);
    let http = running.http();
    let body = json!({ "policy": "user", "key": "a-key-of-a-client" });
    assert_eq!(http.statuses(4, &body).await, [200, 200, 200, 429]);
    http.post("/v1/check", &json!({ "policy": "address", "key": "a-key-of-a-client" })).await;
    running.terminate();
    let log = running.log();
    assert!(!log.contains("a-key-of-a-client") && !log.contains("a-pass-word"), "{log}");
}

/// What is logged about a request has its identifier, which is the client's if that is good for a log.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_traced_by_their_identifier() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, POLICIES).unwrap();
    let mut command = command();
    command.args(["--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--redis=off", "--log=debug", "--config"]);
    let mut running = Running::start(command.arg(&path));
    let (http, body) = (running.http(), json!({ "policy": "user", "key": "a-key-of-a-client" }).to_string());
    for headers in [&[("x-request-id", "from:http-1")][..], &[], &[("x-request-id", "no good")]] {
        let response = http.send("POST", "/v1/check", headers, body.clone()).await;
        assert_eq!(response.status, 200);
    }
    let long = "x".repeat(129);
    assert_eq!(http.send("POST", "/v1/check", &[("x-request-id", &long)], body).await.status, 429);
    let mut client = tonic::client::Grpc::new(running.channel().await);
    let mut asked = tonic::Request::new(request("d", vec![descriptor(&[("user", "a-key-of-a-client")])]));
    asked.metadata_mut().insert("x-request-id", "from:grpc-1".parse().unwrap());
    should_with(&mut client, asked).await.unwrap();
    running.terminate();
    let log = running.log();
    let decided: Vec<&str> = log.lines().filter(|line| line.contains("decided")).collect();
    let ids: Vec<&str> = decided.iter().map(|line| id_of(line)).collect();
    assert_eq!(ids.len(), 5, "{log}");
    assert_eq!((ids[0], ids[4]), ("from:http-1", "from:grpc-1"), "{log}");
    for made in &ids[1..4] {
        assert!(made.len() == 16 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{log}");
    }
    assert!(ids[1] != ids[2] && ids[2] != ids[3], "{log}");
    assert!(decided[0].contains("allowed=true") && decided[3].contains("allowed=false"), "{log}");
    assert!(decided[0].contains("[\"user\"]"), "{log}");
    assert!(!log.contains("a-key-of-a-client") && !log.contains("no good") && !log.contains("xxx"), "{log}");
}

/// The identifier in a line of the log.
fn id_of(line: &str) -> &str {
    let plain = line.split_once("id=\"").and_then(|(_, rest)| rest.split_once('"'));
    plain.unwrap_or_else(|| panic!("{line}")).0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_prints_to_try_works() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/server/server.toml");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limits.toml");
    std::fs::write(&file, "[[policies]]\nname = \"mine\"\nkey = \"api-key:x-api-key\"\nlimit = \"3/d\"\n")
        .unwrap();
    for options in [&["--config", example][..], &["--config", file.to_str().unwrap()], &["--allow-limits"]] {
        let mut command = command();
        command.args(options).args(["--http", "127.0.0.1:0", "--grpc", "off", "--redis", "off"]);
        let running = Running::start(&mut command);
        let body = running.1.iter().find_map(|line| line.trim().strip_suffix('\'')?.split_once("-d '"));
        let (_, body) = body.unwrap_or_else(|| panic!("{:?}", running.1));
        let body = serde_json::from_str(body).unwrap();
        assert_eq!(running.http().statuses(1, &body).await, [200], "{options:?}: {body}");
    }
}
