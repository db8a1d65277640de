//! The command: its options, what it prints, and its end.

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use support::{Http, POLICIES};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-server"));
    // Nothing of the environment of who runs the test.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATELIMIT_")) {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// A process that is ended when the test ends.
struct Running(Child, Vec<String>);

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut running = Self(command.spawn().unwrap(), Vec::new());
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        while let Some(line) = lines.next().transpose().unwrap() {
            running.1.push(line);
            if running.1.last().is_some_and(|line| line == "Ctrl-C ends it") {
                return running;
            }
        }
        let mut error = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        panic!("it did not start: {error}");
    }

    fn http(&self) -> Http {
        let address = self.1.iter().find_map(|line| line.strip_prefix("HTTP on ")?.strip_suffix(", try:"));
        Http::at(address.unwrap().parse().unwrap())
    }

    fn terminate(&mut self) -> bool {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
    let mut log = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
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
    let mut log = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(!log.contains("a-key-of-a-client") && !log.contains("a-pass-word"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_prints_to_try_works() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/server/server.toml");
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("limits.toml");
    std::fs::write(&own, "[[policies]]\nname = \"mine\"\nkey = \"api-key:x-api-key\"\nlimit = \"3/d\"\n")
        .unwrap();
    for options in [&["--config", example][..], &["--config", own.to_str().unwrap()], &["--allow-limits"]] {
        let mut command = command();
        command.args(options).args(["--http", "127.0.0.1:0", "--grpc", "off", "--redis", "off"]);
        let running = Running::start(&mut command);
        let body = running.1.iter().find_map(|line| line.trim().strip_suffix('\'')?.split_once("-d '"));
        let (_, body) = body.unwrap_or_else(|| panic!("{:?}", running.1));
        let body = serde_json::from_str(body).unwrap();
        assert_eq!(running.http().statuses(1, &body).await, [200], "{options:?}: {body}");
    }
}
