//! What is around the server in tests: the server itself as a process, a service that is protected, an HTTP client.
#![allow(dead_code, unreachable_pub)] // no test needs all of it

pub mod envoy;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratelimit_testbed::{Application, Port, Server, Settings, Testbed};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A time limit that no busy machine exceeds, for tests that are not about time limits.
pub const PATIENT: &str = "60s";

/// How long a condition may take to become true: far longer than a busy machine needs.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// The code in the page for users that begins with this line, without its fence: what is written there is what is tested.
pub fn written(first_line: &str) -> String {
    let page = include_str!("../../../../docs/server.md");
    let mut blocks = page.split("```").skip(1).step_by(2).filter_map(|block| Some(block.split_once('\n')?.1));
    let found = blocks.find(|block| block.lines().next() == Some(first_line));
    found.unwrap_or_else(|| panic!("docs/server.md has no code that begins with {first_line:?}")).to_owned()
}

/// A testbed whose servers all belong to this test.
pub fn testbed() -> Testbed {
    Testbed::new(Settings { addresses: Default::default(), ..Settings::from_env() })
}

/// A running `ratelimit-server` with all of its doors; stops with the test.
pub struct RateLimitServer {
    pub process: Server,
    grpc: Port,
    redis: Port,
    _folder: tempfile::TempDir,
}

impl RateLimitServer {
    /// Starts one with this configuration (TOML) and these further options, of which the time limit of the store is one.
    pub async fn start(configuration: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("server.toml");
        std::fs::write(&file, configuration).expect("a file");
        let [grpc, redis] = [(); 2].map(|()| Port::reserve().expect("a free port"));
        let mut arguments = vec!["--config".to_owned(), file.to_string_lossy().into_owned()];
        arguments.extend(["--http", "127.0.0.1:<port>", "--grpc"].map(str::to_owned));
        arguments.extend([format!("127.0.0.1:{}", grpc.number()), "--redis".to_owned()]);
        arguments.push(format!("127.0.0.1:{}", redis.number()));
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        let program = env!("CARGO_BIN_EXE_ratelimit-server").into();
        let application =
            Application { program, arguments, environment: Vec::new(), ready: "/ready".to_owned() };
        let process = application.start().await.unwrap_or_else(|error| panic!("{error}"));
        Self { process, grpc, redis, _folder: folder }
    }

    /// Where it listens for HTTP.
    pub fn http(&self) -> SocketAddr {
        self.process.address()
    }

    /// Where it listens for gRPC.
    pub fn grpc(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.grpc.number()).into()
    }

    /// Where it listens for the Redis protocol.
    pub fn redis(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.redis.number()).into()
    }
}

/// A service that answers every request, and counts how many it has served, by the field `x-api-key`.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

/// The service behind a proxy.
pub struct Service {
    pub address: SocketAddr,
    counts: Counts,
}

impl Service {
    pub async fn start() -> Self {
        let serve = async |State(counts): State<Counts>, headers: axum::http::HeaderMap| {
            let key = headers.get("x-api-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
            *counts.0.lock().expect("no panic").entry(key.to_owned()).or_default() += 1;
            "served"
        };
        let counts = Counts::default();
        let router = Router::new().fallback(serve).with_state(counts.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { address, counts }
    }

    /// Waits until it has served this many requests of this key.
    pub async fn has_served(&self, key: &str, number: u64) {
        let begun = Instant::now();
        while self.served(key) < number {
            assert!(begun.elapsed() < DEADLINE, "{} of {number} were served", self.served(key));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many requests of this key it has served.
    pub fn served(&self, key: &str) -> u64 {
        self.counts.0.lock().expect("no panic").get(key).copied().unwrap_or_default()
    }
}

/// An HTTP client that keeps its connections.
#[derive(Clone)]
pub struct Browser(Pool<HttpConnector, Empty<bytes::Bytes>>);

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: http::HeaderMap,
    pub body: String,
}

impl Answer {
    /// The value of a header field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Browser {
    pub fn new() -> Self {
        Self(Pool::builder(TokioExecutor::new()).build_http())
    }

    /// Asks for a page with this API key; none if the connection broke.
    pub async fn try_get(&self, address: SocketAddr, path: &str, key: &str) -> Option<Answer> {
        let mut request = http::Request::get(format!("http://{address}{path}"));
        if !key.is_empty() {
            request = request.header("x-api-key", key);
        }
        let request = request.body(Empty::new()).expect("a request");
        let answering = async {
            let response = self.0.request(request).await.ok()?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            Some(Answer { status: head.status.as_u16(), fields: head.headers, body })
        };
        tokio::time::timeout(DEADLINE, answering).await.expect("an answer in time")
    }

    /// The same, of a server that must answer.
    pub async fn get(&self, address: SocketAddr, path: &str, key: &str) -> Answer {
        self.try_get(address, path, key).await.unwrap_or_else(|| panic!("{address} broke the connection"))
    }

    /// Sends this many requests, 16 at a time.
    pub async fn flood(&self, address: SocketAddr, path: &str, key: &str, requests: u64) -> Tally {
        self.flood_from(16, address, path, key, requests).await
    }

    /// Sends this many requests, from this many clients at once.
    pub async fn flood_from(
        &self,
        clients: usize,
        address: SocketAddr,
        path: &str,
        key: &str,
        requests: u64,
    ) -> Tally {
        let (tally, left) = (Arc::<Tally>::default(), Arc::new(AtomicU64::new(requests)));
        let senders = (0..clients).map(|_| {
            let (browser, tally, left) = (self.clone(), Arc::clone(&tally), Arc::clone(&left));
            let (path, key) = (path.to_owned(), key.to_owned());
            tokio::spawn(async move {
                while take(&left) {
                    let began = Instant::now();
                    let answer = browser.try_get(address, &path, &key).await;
                    let status = answer.map_or(0, |answer| answer.status);
                    tally.0.lock().expect("no panic").push((status, began.elapsed()));
                }
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.expect("no panic");
        }
        Arc::into_inner(tally).expect("the senders have ended")
    }
}

/// Takes one of what is left.
fn take(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// The status of each answer, 0 for a broken connection, and how long it took.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Vec<(u16, Duration)>>);

impl Tally {
    /// All statuses with their numbers, in order.
    pub fn all(&self) -> BTreeMap<u16, u64> {
        let mut all = BTreeMap::new();
        for (status, _) in self.0.lock().expect("no panic").iter() {
            *all.entry(*status).or_default() += 1;
        }
        all
    }

    /// How many were answered with this status.
    pub fn of(&self, status: u16) -> u64 {
        self.all().get(&status).copied().unwrap_or_default()
    }

    /// In this time 99 of 100 were answered.
    pub fn p99(&self) -> Duration {
        let mut times: Vec<_> = self.0.lock().expect("no panic").iter().map(|(_, time)| *time).collect();
        times.sort_unstable();
        times[(times.len() * 99).div_ceil(100) - 1]
    }
}
