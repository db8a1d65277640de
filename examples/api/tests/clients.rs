//! Real clients against the running service: never more is admitted than the limit, and no client is refused after it
//! has waited as the response said.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ratelimit_testbed::Testbed;

use crate::support::Instance;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients.py");

/// A service whose free plan has this limit.
struct Service {
    instance: Instance,
    _folder: tempfile::TempDir,
}

impl Service {
    fn limited(limit: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.yaml");
        let policies = "policies: [{name: requests, key: 'api-key:x-api-key'}]";
        fs::write(&path, format!("{policies}\nplans: {{free: {{requests: {limit}}}}}")).unwrap();
        Self { instance: Instance::with(&["--config", path.to_str().unwrap()]), _folder: folder }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.instance.address)
    }

    /// Starts a Python client that ends when at least `wanted` of its requests have been admitted, and one was refused.
    fn python(&self, python: &Path, wanted: u32) -> Child {
        let mut client = Command::new(python);
        client.args([SCRIPT, &self.url(), "free-demo", &wanted.to_string()]);
        client.stdout(Stdio::piped()).spawn().unwrap()
    }
}

/// One request of a Python client; instants in nanoseconds of a clock that all processes share.
#[derive(Clone, Copy, Debug)]
struct Asked {
    sent: u64,
    answered: u64,
    status: u64,
    has_waited: bool,
}

/// The requests of a client, in order.
fn requests_of(client: Child) -> Vec<Asked> {
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success());
    let read = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [sent, answered, status, has_waited] = numbers[..] else { panic!("{line}") };
        Asked { sent, answered, status, has_waited: has_waited == 1 }
    };
    String::from_utf8(output.stdout).unwrap().lines().map(read).collect()
}

/// Between the sending of any request and the answer to any other, at most this many were admitted.
fn at_most(all: &[Asked], most: impl Fn(u64) -> u64) {
    let admitted: Vec<&Asked> = all.iter().filter(|asked| asked.status == 200).collect();
    for first in &admitted {
        for last in &admitted {
            let Some(nanos) = last.answered.checked_sub(first.sent) else { continue };
            let within =
                admitted.iter().filter(|other| other.sent >= first.sent && other.answered <= last.answered);
            let within = within.count() as u64;
            assert!(within <= most(nanos), "{within} within {nanos} ns");
        }
    }
}

const SECOND: u64 = 1_000_000_000;

/// 5 in any span of 2 seconds; a span of more than that can be covered by several.
fn of_the_log(nanos: u64) -> u64 {
    5 * (nanos / (2 * SECOND) + 1)
}

/// 3 at once and one more each 0.4 seconds.
fn of_the_bucket(nanos: u64) -> u64 {
    3 + nanos * 5 / (2 * SECOND)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_client_that_obeys_retry_after_is_not_refused_again() {
    let python = Testbed::from_env().client("python3", "python3").await.unwrap();
    let limits = [
        "5/2s log",
        "5/2s",
        "5/2s fixed",
        "5/2s precision 500ms strict",
        "5/2s burst 3",
        "5/2s leaky burst 3",
    ];
    let services = limits.map(Service::limited);
    let clients: Vec<Child> = services.iter().map(|service| service.python(&python, 13)).collect();
    for (limit, client) in limits.into_iter().zip(clients) {
        let asked = requests_of(client);
        assert!(asked.iter().filter(|asked| asked.status == 200).count() >= 13, "{limit}");
        assert!(asked.iter().all(|asked| !asked.has_waited || asked.status == 200), "{limit}: {asked:?}");
        match limit {
            "5/2s log" | "5/2s precision 500ms strict" => at_most(&asked, of_the_log),
            "5/2s burst 3" | "5/2s leaky burst 3" => at_most(&asked, of_the_bucket),
            _ => {} // these admit more around a boundary, as documented
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_python_clients_with_one_key_share_one_limit() {
    let python = Testbed::from_env().client("python3", "python3").await.unwrap();
    let service = Service::limited("5/2s log");
    let clients: Vec<Child> = (0..4).map(|_| service.python(&python, 4)).collect();
    let all: Vec<Asked> = clients.into_iter().flat_map(requests_of).collect();
    assert!(all.iter().filter(|asked| asked.status == 200).count() >= 16);
    at_most(&all, of_the_log);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_curls_at_once_use_up_a_limit_of_ten() {
    let curl = Testbed::from_env().client("curl", "curl").await.unwrap();
    let service = Service::limited("10/day log");
    let mut many = Command::new(curl);
    many.args(["-s", "-o", "/dev/null", "-w", "%{http_code}\\n", "-H", "x-api-key: free-demo"]);
    many.args(["--parallel", "--parallel-immediate", "--parallel-max", "50"]);
    let output = many.arg(format!("{}?[1-50]", service.url())).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!((said.matches("200\n").count(), said.matches("429\n").count()), (10, 40), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_curl_that_obeys_retry_after_needs_one_retry() {
    let curl = Testbed::from_env().client("curl", "curl").await.unwrap();
    let service = Service::limited("2/s log");
    let mut refused = false;
    // The third of three calls within a second is refused: so often, however slow the machine is.
    for call in 1..=200 {
        if refused && call > 5 {
            break;
        }
        let mut one = Command::new(&curl);
        // With a single retry, after the number of seconds in `Retry-After`.
        one.args(["-sS", "-i", "--retry", "1", "-H", "x-api-key: free-demo", &service.url()]);
        let output = one.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("200 OK"), "call {call}: {said}");
        refused |= said.contains("HTTP/1.1 429 ");
    }
    assert!(refused, "nothing was refused, so nothing was tried");
}
