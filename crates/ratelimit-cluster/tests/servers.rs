//! Three `Synced` nodes on a real server: what they admit together, and that they agree afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_cluster::Synced;
use ratelimit_core::store::{Claim, MeterId, Mode, Verdict};
use ratelimit_core::{
    Clock as _, CounterStore, Limit, ManualClock, RateLimiter, SyncCounterStore, Timestamp,
};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::Testbed;

const NODES: u64 = 3;

/// How many claims a node makes between two synchronizations.
const UNTOLD: u64 = 2;

/// Time enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);

fn now() -> Timestamp {
    // The middle of an hour, so that no segment ends meanwhile by the server's clock either.
    Timestamp::from_secs(1_800_001_800)
}

/// A new prefix of keys.
fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("synced-{}-{}:", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn claim<S: CounterStore>(node: &Synced<S>, limit: &Limit, mode: Mode, cost: u64) -> (bool, Verdict) {
    let id = MeterId { namespace: "n", scope: limit.scope(), key: b"k" };
    let claim = Claim { id, cost, meter: limit.meter_for(b"k") };
    node.claim_one_now(now(), mode, &claim.id, claim.cost, &claim.meter).unwrap()
}

async fn check<S: CounterStore>(nodes: &[Synced<S>]) {
    for kind in ["fixed", "", "precision 15m", "precision 15m strict", "burst 40", "queue burst 40", "log"] {
        let limit: Limit = format!("40/h {kind}").parse().unwrap();
        let mut admitted = 0;
        for round in 0..40 {
            let node = &nodes[round % nodes.len()];
            for _ in 0..UNTOLD {
                admitted += u64::from(claim(node, &limit, Mode::Charge, 1).0);
            }
            node.sync(now()).await.unwrap();
        }
        let most = limit.burst() + (NODES - 1) * UNTOLD;
        assert!((limit.burst()..=most).contains(&admitted), "{kind}: {admitted} were admitted");

        let limit: Limit = format!("400/h {} name agree", kind.replace("40", "400")).parse().unwrap();
        let mut charged = 0;
        for (nth, node) in nodes.iter().chain(nodes).enumerate() {
            charged += nth as u64 + 1;
            claim(node, &limit, Mode::Force, nth as u64 + 1);
            node.sync(now()).await.unwrap();
            let left = claim(node, &limit, Mode::Peek, 0).1.remaining;
            assert_eq!(left, limit.burst() - charged, "{kind}: node {nth} has told last");
        }
        assert!(nodes.iter().all(|node| node.unsure() == 0));
    }
}

#[tokio::test]
async fn three_nodes_on_redis_stay_within_the_bound() {
    let server = Testbed::from_env().redis().await.unwrap();
    let prefix = prefix();
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let config = RedisConfig::from_url(server.url()).unwrap().prefix(prefix.clone()).timeout(TIMEOUT);
        nodes.push(Synced::new(RedisStore::connect_with(config).await.unwrap()));
    }
    check(&nodes).await;
}

#[tokio::test]
async fn three_nodes_on_memcached_stay_within_the_bound() {
    let server = Testbed::from_env().memcached().await.unwrap();
    let prefix = prefix();
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let config = MemcachedConfig::from_url(server.url()).unwrap().prefix(prefix.clone()).timeout(TIMEOUT);
        nodes.push(Synced::new(MemcachedStore::connect_with(config).await.unwrap()));
    }
    check(&nodes).await;
}

/// A renewal is charged under the largest log, which would not fit into an item.
#[tokio::test]
async fn a_renewed_lease_is_sent_to_memcached() {
    let server = Testbed::from_env().memcached().await.unwrap();
    let config = MemcachedConfig::from_url(server.url()).unwrap().prefix(prefix()).timeout(TIMEOUT);
    let node = Synced::new(MemcachedStore::connect_with(config).await.unwrap());
    let limiter = RateLimiter::new(&node, "3 at once".parse::<Limit>().unwrap());
    let clock = ManualClock::at(now());
    let limiter = limiter.with_clock(clock.clone());
    let held = limiter.check_now("k").unwrap();
    node.sync(clock.now()).await.unwrap();
    clock.advance(Duration::from_secs(20));
    assert!(limiter.renew_now(&held).unwrap());
    node.sync(clock.now()).await.unwrap();
    assert_eq!(limiter.peek_now("k").unwrap().remaining(), 2);
}

#[tokio::test]
async fn three_nodes_on_postgres_stay_within_the_bound() {
    let server = Testbed::from_env().postgres().await.unwrap();
    let config =
        PostgresConfig::from_url(server.url()).unwrap().schema(prefix()).timeout(TIMEOUT).prune_every(None);
    PostgresStore::connect_with(config.clone()).await.unwrap().migrate().await.unwrap();
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Synced::new(PostgresStore::connect_with(config.clone()).await.unwrap()));
    }
    check(&nodes).await;
}
