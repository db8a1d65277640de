//! One server that loses its scripts, closes connections and hands over to another, under load.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use common::Server;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Limit, StoreError, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::{SlowProxy, at_some_scale};
use tokio::net::{TcpListener, TcpStream};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const ALL: u64 = 1_000_000;

/// No machine is so busy that a call takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(url: &str, connections: usize) -> RedisStore {
    let config = RedisConfig::from_url(url).unwrap().timeout(PATIENCE).connections(connections);
    RedisStore::connect_with(config).await.unwrap()
}

async fn send_claim(store: &RedisStore, text: &str, mode: Mode) -> Result<Answer, StoreError> {
    let limit: Limit = format!("{ALL}/h {text}").parse().unwrap();
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claim = [Claim { id, cost: 1, meter: limit.meter_for(b"k") }];
    store.claim(Claims::new(NOW, mode, &claim).unwrap()).await
}

/// The outcome of many calls.
#[derive(Default)]
struct Outcome {
    charged: AtomicU64,
    unknown: AtomicU64,
    not_charged: AtomicU64,
}

impl Outcome {
    /// Waits until another call was answered.
    async fn next_answer(&self) {
        let before = self.charged.load(Ordering::SeqCst);
        let answered = async {
            while self.charged.load(Ordering::SeqCst) == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("no call is answered any more");
    }
}

/// Runs calls in six tasks until `trouble` is over.
async fn under_load(
    store: &RedisStore,
    text: &'static str,
    trouble: impl AsyncFnOnce(&Outcome),
) -> Arc<Outcome> {
    let (outcome, over) = (Arc::<Outcome>::default(), Arc::<AtomicBool>::default());
    let task = |_| {
        let (store, outcome, over) = (store.clone(), outcome.clone(), over.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let count = match send_claim(&store, text, Mode::Charge).await {
                    Ok(answer) => {
                        assert!(answer.charged, "{answer:?}");
                        &outcome.charged
                    }
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        if error.applied() == Applied::No { &outcome.not_charged } else { &outcome.unknown }
                    }
                };
                count.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let tasks: Vec<_> = (0..6).map(task).collect();
    trouble(&outcome).await;
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    outcome
}

async fn used(store: &RedisStore, text: &str) -> u64 {
    ALL - send_claim(store, text, Mode::Peek).await.unwrap().verdicts[0].remaining
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_forgotten_under_load_are_sent_again() {
    let server = Server::start(&[]).await;
    for (text, connections) in [("", 1), ("fixed", 3)] {
        let store = connect(&server.url(), connections).await;
        let outcome = under_load(&store, text, async |outcome| {
            for _ in 0..40 {
                assert!(server.say("SCRIPT FLUSH").contains("OK"));
                outcome.next_answer().await;
            }
        });
        let outcome = outcome.await;
        let [charged, unknown, not] = [&outcome.charged, &outcome.unknown, &outcome.not_charged];
        assert_eq!((unknown.load(Ordering::SeqCst), not.load(Ordering::SeqCst)), (0, 0), "calls failed");
        assert_eq!(used(&store, text).await, charged.load(Ordering::SeqCst));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_are_replaced_under_load() {
    let server = Server::start(&[]).await;
    for (text, connections) in [("", 1), ("fixed", 3)] {
        let store = connect(&server.url(), connections).await;
        let outcome = under_load(&store, text, async |outcome| {
            for _ in 0..40 {
                server.say("CLIENT KILL TYPE normal SKIPME yes");
                outcome.next_answer().await;
            }
        });
        let outcome = outcome.await;
        let [charged, unknown] =
            [&outcome.charged, &outcome.unknown].map(|count| count.load(Ordering::SeqCst));
        let used = used(&store, text).await;
        println!("{charged} charged, {unknown} unknown, {used} used");
        assert!((charged..=charged + unknown).contains(&used), "{used} of {charged} and {unknown}");
    }
}

/// Forwards each connection to the port that is set when it is made.
async fn forwarder(target: Arc<AtomicU16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut inner, _)) = listener.accept().await {
            let port = target.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let mut outer = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
            });
        }
    });
    url
}

/// After a failover a name resolves to another server, while connections to the old one stay open.
#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_demoted_server_are_replaced() {
    let (old, new) = (Server::start(&[]).await, Server::start(&[]).await);
    let target = Arc::new(AtomicU16::new(old.port));
    let store = connect(&forwarder(target.clone()).await, 2).await;
    for _ in 0..2 {
        assert!(send_claim(&store, "", Mode::Charge).await.unwrap().charged);
    }
    new.say(&format!("REPLICAOF 127.0.0.1 {}", old.port));
    while !new.say("INFO replication").contains("master_link_status:up") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(old.say("WAIT 1 20000").trim(), ":1");
    new.say("REPLICAOF NO ONE");
    new.say("SCRIPT FLUSH");
    old.say(&format!("REPLICAOF 127.0.0.1 {}", new.port));
    target.store(new.port, Ordering::SeqCst);
    // One call on each connection notices.
    for _ in 0..2 {
        let error = send_claim(&store, "", Mode::Charge).await.unwrap_err();
        assert!(error.is_retryable() && error.applied() == Applied::No, "{error}");
    }
    for _ in 0..2 {
        assert!(send_claim(&store, "", Mode::Charge).await.unwrap().charged);
    }
    assert_eq!(used(&store, "").await, 4, "what the new server had received still counts");
}

/// As under `Resilience`, whose time limit is shorter than the store's, or when a client hangs up.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_is_replaced_although_every_caller_gives_up_early() {
    let (old, new) = (Server::start(&[]).await, Server::start(&[]).await);
    let target = Arc::new(AtomicU16::new(old.port));
    let url = forwarder(target.clone()).await;
    let timeout = Duration::from_secs(2);
    let config = RedisConfig::from_url(&url).unwrap().timeout(timeout);
    let store = RedisStore::connect_with(config).await.unwrap();
    assert!(send_claim(&store, "", Mode::Charge).await.unwrap().charged);
    old.freeze().await;
    target.store(new.port, Ordering::SeqCst);
    let (begun, mut attempts) = (tokio::time::Instant::now(), 0);
    let early = Duration::from_millis(400);
    while !matches!(tokio::time::timeout(early, send_claim(&store, "", Mode::Charge)).await, Ok(Ok(_))) {
        attempts += 1;
        assert!(attempts < 200, "the store still waits for the frozen server");
    }
    assert!(begun.elapsed() >= timeout, "the store's time limit had not passed");
}

#[tokio::test]
async fn dropped_calls_do_not_close_a_connection_that_answers() {
    let server = Server::start(&[]).await;
    let timeout = Duration::from_secs(5);
    let config = RedisConfig::from_url(&server.url()).unwrap().timeout(timeout);
    let store = RedisStore::connect_with(config).await.unwrap();
    let connections = || {
        let list = server.say("CLIENT LIST");
        let names = list.lines().filter(|line| line.contains("cmd=evalsha"));
        names.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert!(send_claim(&store, "", Mode::Charge).await.unwrap().charged);
    let before = connections();
    assert_eq!(before.len(), 1, "{before:?}");
    // A reply that comes after its caller has gone, and calls that are dropped before they are written.
    server.freeze().await;
    let early = tokio::time::timeout(Duration::from_millis(100), send_claim(&store, "", Mode::Charge)).await;
    assert!(early.is_err(), "a frozen server has answered");
    server.thaw().await;
    tokio::time::sleep(timeout + Duration::from_millis(100)).await;
    assert!(send_claim(&store, "", Mode::Charge).await.unwrap().charged);
    for _ in 0..20 {
        let mut call = Box::pin(send_claim(&store, "", Mode::Charge));
        let _ = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
    }
    tokio::time::sleep(timeout + Duration::from_millis(100)).await;
    assert!(send_claim(&store, "", Mode::Charge).await.unwrap().charged);
    // A reply that had come before its caller went.
    let mut call = Box::pin(send_claim(&store, "", Mode::Charge));
    let _ = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(call);
    tokio::time::sleep(timeout + Duration::from_millis(100)).await;
    assert!(send_claim(&store, "", Mode::Charge).await.unwrap().charged);
    assert_eq!(connections(), before);
}

#[tokio::test]
async fn a_call_that_waited_for_the_connection_does_not_close_it() {
    let server = Server::start(&[]).await;
    let address = (std::net::Ipv4Addr::LOCALHOST, server.port).into();
    at_some_scale(async |scale| {
        // Connecting takes three round trips, so little time is left for the first call.
        let [timeout, trip] = [3_000, 800].map(|millis| Duration::from_millis(millis) * scale);
        let proxy = SlowProxy::start(address, trip).await.unwrap();
        let config = RedisConfig::from_url(&format!("redis://{}", proxy.address())).unwrap().timeout(timeout);
        let store = RedisStore::lazy(config).unwrap();
        let error = send_claim(&store, "", Mode::Charge).await.unwrap_err();
        if error.applied() != Applied::Unknown {
            return Err(format!("it was not sent: {error}"));
        }
        let second = send_claim(&store, "", Mode::Charge).await.map_err(|error| error.to_string())?;
        assert!(second.charged);
        match proxy.accepted() {
            1 => Ok(()),
            connections => Err(format!("{connections} connections")),
        }
    })
    .await;
}
