//! Instances behind a round-robin proxy (HAProxy) that share one Redis: how many requests are admitted in total, for
//! each way of counting, while one instance is killed, one paused and one added.
//!
//! `cargo test -p api --features redis --test fleet -- --nocapture` prints the numbers.

#![allow(clippy::disallowed_methods, reason = "processes and a proxy run on the machine's clock")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ratelimit_testbed::{Port, Testbed};

use crate::support::Instance;
use rustix::process::Signal;

const LIMIT: u64 = 3_000;

/// Number of concurrent requests.
const CLIENTS: u64 = 16;

/// How often instances exchange their counts, in milliseconds.
const INTERVAL: &str = "200";

/// How long to wait for a condition before the test fails: far longer than a busy machine needs.
const DEADLINE: Duration = Duration::from_secs(120);

/// HAProxy in front of instances, some of which may not run yet. Stops with the test.
struct Proxy {
    process: Child,
    address: SocketAddr,
    _port: Port,
}

impl Proxy {
    fn start(program: &Path, folder: &Path, instances: &[SocketAddr]) -> Self {
        let port = Port::reserve().unwrap();
        let address = address(&port);
        let mut config = format!(
            "global\n    maxconn 256\ndefaults\n    mode http\n    timeout connect 10s\n    timeout client 60s\n    \
             timeout server 10s\n    timeout check 3s\n    retries 3\n    option redispatch 1\n    \
             retry-on conn-failure empty-response response-timeout\nlisten api\n    bind {address}\n    \
             balance roundrobin\n    option httpchk GET /\n    http-check expect rstatus ^[24]\n"
        );
        for (number, instance) in instances.iter().enumerate() {
            config.push_str(&format!("    server api{number} {instance} check inter 100ms fall 1 rise 1\n"));
        }
        let path = folder.join("haproxy.cfg");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(program);
        command.arg("-f").arg(&path).arg("-db").stdout(Stdio::null()).stderr(Stdio::null());
        let proxy = Self { process: command.spawn().unwrap(), address, _port: port };
        wait_until("the proxy answers", || proxy.ask().is_some_and(|status| status == 401));
        proxy
    }

    /// The status of the response, or none if the connection broke.
    fn status(&self, api_key: &str) -> Option<u16> {
        let mut connection = TcpStream::connect(self.address).ok()?;
        connection.set_read_timeout(Some(DEADLINE)).ok()?;
        let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{api_key}\r\n");
        connection.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }

    fn ask(&self) -> Option<u16> {
        self.status("")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn address(port: &Port) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port.number()).into()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The outcomes of requests.
#[derive(Debug, Default)]
struct Tally {
    admitted: AtomicU64,
    refused: AtomicU64,
    /// How often a client sent its request again, because nobody had decided it: on a busy machine, the proxy may take all
    /// instances for dead. What was not answered may have been charged.
    repeated: AtomicU64,
}

impl Tally {
    /// Sends this many requests of one customer, from several concurrent clients, each until it is decided.
    fn storm(&self, proxy: &Proxy, requests: u64) {
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    for _ in 0..requests / CLIENTS {
                        self.send(proxy);
                    }
                });
            }
        });
    }

    fn send(&self, proxy: &Proxy) {
        wait_until("a request is decided", || {
            let place = match proxy.status("x-api-key: free-demo\r\n") {
                Some(200) => &self.admitted,
                Some(429) => &self.refused,
                _ => &self.repeated,
            };
            place.fetch_add(1, Ordering::Relaxed);
            !std::ptr::eq(place, &raw const self.repeated)
        });
    }

    /// How many requests may have been charged and not answered: those that were sent again, by a client or, because the
    /// instance was stopped before it answered, by the proxy.
    fn lost(&self) -> u64 {
        2 * CLIENTS + self.repeated.load(Ordering::Relaxed)
    }
}

struct Fleet {
    store: String,
    counting: &'static str,
    config: PathBuf,
}

impl Fleet {
    fn instance(&self, address: SocketAddr) -> Instance {
        let (address, config) = (address.to_string(), self.config.to_str().unwrap());
        Instance::with(&[
            "--listen",
            &address,
            "--store",
            &self.store,
            "--counting",
            self.counting,
            "--interval",
            INTERVAL,
            "--config",
            config,
        ])
    }
}

/// Returns how many requests were admitted in total, and how many may have been charged besides.
async fn trial(counting: &'static str) -> (u64, u64) {
    let testbed = Testbed::from_env();
    let haproxy = testbed.client("haproxy", "haproxy").await.unwrap();
    let server = testbed.redis().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.yaml");
    // A window that does not end during the test.
    let limit = format!("{LIMIT}/300d fixed");
    let policies = "policies: [{name: requests, key: 'api-key:x-api-key'}]";
    fs::write(&config, format!("{policies}\nplans: {{free: {{requests: {limit}}}}}")).unwrap();
    let fleet = Fleet { store: server.patient_url(), counting, config };

    let ports = [(); 4].map(|()| Port::reserve().unwrap());
    let addresses = ports.each_ref().map(address);
    let [first, second, third, fourth] = addresses;
    let [first, second, third] = [first, second, third].map(|address| fleet.instance(address));
    let proxy = Proxy::start(&haproxy, folder.path(), &addresses);
    let (tally, begun) = (Tally::default(), Instant::now());
    tally.storm(&proxy, 800);
    drop(first); // killed, with everything that it held and had not published
    tally.storm(&proxy, 800);
    second.signal(Signal::STOP);
    let fourth = fleet.instance(fourth);
    tally.storm(&proxy, 800);
    second.signal(Signal::CONT);
    tally.storm(&proxy, 4_000);
    let seconds = begun.elapsed().as_secs_f64();
    let instances = [second, third, fourth];
    // What one instance holds is only available from that one, so all are called until all refuse.
    let drained = instances.iter().map(|instance| {
        let admitted = (0..).take_while(|_| instance.ask(Some("free-demo")).0 == 200);
        admitted.count() as u64
    });
    let admitted = tally.admitted.load(Ordering::Relaxed) + drained.sum::<u64>();
    println!("{counting}: {admitted} admitted of {LIMIT}; {tally:?} in {seconds:.1} s");
    (admitted, tally.lost())
}

#[tokio::test]
async fn a_fleet_on_a_shared_store_admits_the_limit() {
    let (admitted, lost) = trial("straight").await;
    assert!((LIMIT - lost..=LIMIT).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn a_fleet_with_leases_admits_no_more_than_the_limit() {
    let (admitted, lost) = trial("leased").await;
    // The killed instance had at most one lease, which is at most an eighth of what remained.
    assert!((LIMIT - LIMIT / 8 - lost..=LIMIT).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn a_synced_fleet_admits_at_most_the_limit_of_each_node() {
    let (admitted, lost) = trial("synced").await;
    assert!((LIMIT - lost..=4 * LIMIT).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn a_replicated_fleet_admits_at_most_the_limit_of_each_node() {
    let (admitted, lost) = trial("replicated").await;
    assert!((LIMIT - lost..=4 * LIMIT).contains(&admitted), "{admitted}");
}
