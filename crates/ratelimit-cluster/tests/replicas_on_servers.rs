//! Three replicated nodes on real servers: they agree after an interval, also after the server was killed.
//!
//! `cargo test -p ratelimit-cluster --all-features --test replicas_on_servers -- --nocapture` prints what was sent.
#![cfg(all(feature = "redis", feature = "postgres"))]

use std::sync::Arc;
use std::time::Duration;

use ratelimit_cluster::{PostgresTransport, RedisTransport, Replicated, Transport};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{Limit, SyncCounterStore as _, SystemClock, Timestamp};
use ratelimit_testbed::{Postgres, Redis, Server, Testbed};
use tokio::time::{sleep, timeout};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const PATIENCE: Duration = Duration::from_secs(120);
const KEYS: u64 = 2_000;
const TEXTS: [&str; 4] = ["1000/h fixed", "1000/h", "1000/h burst 1000", "1000/h log"];

type Node<T> = Arc<Replicated<T>>;

fn claim<T: Transport>(node: &Node<T>, limit: &Limit, key: u64, cost: u64, mode: Mode) -> u64 {
    let key = key.to_be_bytes();
    let id = MeterId { namespace: "", scope: limit.scope(), key: &key };
    let claims = [Claim { id, cost, meter: limit.meter_for(&key) }];
    let answer = node.claim_now(Claims::new(START, mode, &claims).unwrap()).unwrap();
    answer.verdicts[0].remaining
}

fn start<T: Transport + 'static>(transport: T) -> Node<T> {
    let node = Arc::new(Replicated::new(transport));
    let listening = node.clone();
    tokio::spawn(async move { listening.listen(&SystemClock::new()).await });
    node
}

/// Broadcasts at intervals until each node sees the expected remaining units of each meter.
async fn wait_until_all_nodes_agree<T: Transport>(nodes: &[Node<T>], limits: &[Limit], remaining: u64) {
    let all_know = |limit: &Limit| {
        let knows = |node| (0..KEYS).all(|key| claim(node, limit, key, 0, Mode::Peek) == remaining);
        nodes.iter().all(knows)
    };
    let broadcast = async {
        while !limits.iter().all(all_know) {
            for node in nodes {
                let _ = node.broadcast(START).await;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, broadcast).await.unwrap_or_else(|_| {
        let stats: Vec<_> = nodes.iter().map(|node| node.stats()).collect();
        panic!("they do not know all after {PATIENCE:?}: {stats:?}");
    });
}

fn charge<T: Transport>(nodes: &[Node<T>], limits: &[Limit], cost: u64) {
    for limit in limits {
        for node in nodes {
            for key in 0..KEYS {
                claim(node, limit, key, cost, Mode::Charge);
            }
        }
    }
}

async fn trial<T: Transport + 'static>(transports: [T; 4], server: &Server) {
    let limits: Vec<Limit> = TEXTS.iter().map(|text| text.parse().unwrap()).collect();
    let [one, other, third, late] = transports;
    let mut nodes: Vec<Node<T>> = [one, other, third].into_iter().map(start).collect();
    charge(&nodes, &limits, 10);
    wait_until_all_nodes_agree(&nodes, &limits, 970).await;
    let stats = nodes[0].stats();
    println!(
        "{:?}: {} meters told with {} bytes in {} messages, pulses included",
        nodes[0].transport(),
        KEYS * limits.len() as u64,
        stats.sent_bytes,
        stats.sent
    );
    // A node that joins receives what it has missed.
    nodes.push(start(late));
    wait_until_all_nodes_agree(&nodes, &limits, 970).await;
    assert!(nodes.iter().all(|node| node.has_joined() && node.peers() == 3));
    // Charges made while the server is down are sent when it is back.
    server.kill().await.unwrap();
    charge(&nodes, &limits, 10);
    for node in &nodes {
        assert!(node.broadcast(START).await.is_err());
    }
    charge(&nodes, &limits, 10);
    server.start().await.unwrap();
    wait_until_all_nodes_agree(&nodes, &limits, 890).await;
    let stats = nodes[0].stats();
    assert_eq!((stats.malformed, stats.uncounted, stats.too_large), (0, 0, 0), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_agree_over_redis() {
    let server = Testbed::from_env().redis_with(Redis::default()).await.unwrap();
    let connect = async || RedisTransport::connect(server.url(), "limits").await.unwrap();
    let transports = [connect().await, connect().await, connect().await, connect().await];
    trial(transports, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_agree_over_postgres() {
    let server = Testbed::from_env().postgres_with(Postgres::default()).await.unwrap();
    let connect = async || PostgresTransport::connect(server.url(), "limits").await.unwrap();
    let transports = [connect().await, connect().await, connect().await, connect().await];
    trial(transports, &server).await;
}
