//! Nodes of a cluster that die, freeze and are replaced under load.
#![allow(clippy::disallowed_methods)] // deadlines are kept on the machine's clock

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratelimit_core::layers::BatchConfig;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Limit, StoreError, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::Cluster;
use tokio::task::JoinHandle;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// The time limit of a call, and how much later a busy machine may report that it has passed.
const LIMIT: Duration = Duration::from_secs(3);
const NOTICED: Duration = Duration::from_secs(30);

/// A cluster has to work again within this time after its nodes do.
const RECOVERED: Duration = Duration::from_secs(120);

async fn store(cluster: &Cluster) -> RedisStore {
    // Checks share round trips even if there are few of them.
    let config = RedisConfig::from_url(&cluster.url())
        .unwrap()
        .timeout(LIMIT)
        .batch(Some(BatchConfig::default().unbatched(0)));
    RedisStore::connect_with(config).await.unwrap()
}

async fn send_claim(store: &RedisStore, key: &str, mode: Mode) -> Result<Answer, StoreError> {
    let limit: Limit = "100/h".parse().unwrap();
    let id = MeterId { namespace: "n", scope: limit.scope(), key: key.as_bytes() };
    let claim = [Claim { id, cost: 1, meter: limit.meter_for(key.as_bytes()) }];
    let since = Instant::now();
    let answer = store.claim(Claims::new(NOW, mode, &claim).unwrap()).await;
    assert!(since.elapsed() < LIMIT + NOTICED, "a call took {:?}: {answer:?}", since.elapsed());
    answer
}

/// Peeks until there is an answer.
async fn recovers(store: &RedisStore, key: &str, within: Duration) -> Answer {
    let since = Instant::now();
    loop {
        match send_claim(store, key, Mode::Peek).await {
            Ok(answer) => return answer,
            Err(error) => assert!(since.elapsed() < within, "{key} after {:?}: {error}", since.elapsed()),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tasks that call in a loop.
struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    errors: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(store: &RedisStore) -> Self {
        let load =
            Self { stop: Arc::default(), answers: Arc::default(), errors: Arc::default(), tasks: Vec::new() };
        let task = |task: usize| {
            let (store, stop) = (store.clone(), load.stop.clone());
            let (answers, errors) = (load.answers.clone(), load.errors.clone());
            tokio::spawn(async move {
                let mut nth = task;
                while !stop.load(Ordering::SeqCst) {
                    let count = match send_claim(&store, &format!("load{}", nth % 97), Mode::Charge).await {
                        Ok(_) => &answers,
                        Err(_) => &errors,
                    };
                    count.fetch_add(1, Ordering::SeqCst);
                    nth += 8;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        };
        let tasks = (0..8).map(task).collect();
        Self { tasks, ..load }
    }

    /// Checks that every call has ended in time and none has panicked.
    async fn stop(self) -> [usize; 2] {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        [self.answers, self.errors].map(|count| count.load(Ordering::SeqCst))
    }
}

/// Keys of the first node, and keys of the other nodes.
fn keys_by_node(cluster: &Cluster) -> [Vec<String>; 2] {
    let port = cluster.nodes()[0].address().port();
    let served = |key: &String| {
        let slot = common::say(port, &format!("CLUSTER KEYSLOT \"rl:{{n:{key}}}x\""));
        slot.trim().trim_start_matches(':').parse::<u16>().unwrap() <= 5460
    };
    let (first, others) = (0..40).map(|nth| format!("key{nth}")).partition(served);
    [first, others]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_under_load() {
    let cluster = common::testbed().redis_cluster_with_replicas().await.unwrap();
    let store = store(&cluster).await;
    let [first, others] = keys_by_node(&cluster);
    for key in first.iter().chain(&others) {
        for _ in 0..5 {
            assert!(send_claim(&store, key, Mode::Charge).await.unwrap().charged);
        }
    }
    let [master, replica] = [0, 3].map(|node| &cluster.nodes()[node]);
    assert_eq!(common::say(master.address().port(), "WAIT 1 20000").trim(), ":1");
    // A promoted node may not have the scripts.
    assert!(common::say(replica.address().port(), "SCRIPT FLUSH").contains("OK"));

    let load = Load::start(&store);
    tokio::time::sleep(Duration::from_millis(200)).await;
    master.kill().await.unwrap();
    let since = Instant::now();
    for key in first.iter().chain(&others) {
        // The nodes need some seconds to agree that it has failed.
        let answer = recovers(&store, key, Duration::from_secs(60)).await;
        assert_eq!(answer.verdicts[0].remaining, 95, "{key}: what the replica had received still counts");
    }
    println!("whole again after {:?}", since.elapsed());
    for key in &first {
        assert!(send_claim(&store, key, Mode::Charge).await.unwrap().charged);
    }
    let [answers, errors] = load.stop().await;
    println!("{answers} answers, {errors} errors meanwhile");
    assert!(errors > 0, "nothing was tried while the node was gone");

    // The old master returns as a replica of the new one.
    master.start().await.unwrap();
    for key in first.iter().chain(&others) {
        recovers(&store, key, RECOVERED).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_reconnect_to_a_cluster_that_dies_repeatedly() {
    let cluster = common::testbed().redis_cluster().await.unwrap();
    let store = store(&cluster).await;
    let keys: Vec<_> = keys_by_node(&cluster).concat();
    let load = Load::start(&store);
    for round in 0..4u64 {
        // At different points of the store's recovery.
        tokio::time::sleep(Duration::from_millis(37 * round)).await;
        cluster.kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(150 * round)).await;
        cluster.start().await.unwrap();
        for key in &keys {
            recovers(&store, key, RECOVERED).await;
        }
    }
    let [answers, errors] = load.stop().await;
    assert!(answers > 0 && errors > 0, "{answers} answers, {errors} errors");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_node_does_not_delay_calls_to_other_nodes() {
    let cluster = common::testbed().redis_cluster().await.unwrap();
    let store = store(&cluster).await;
    let [first, others] = keys_by_node(&cluster);
    for key in first.iter().chain(&others) {
        assert!(send_claim(&store, key, Mode::Charge).await.unwrap().charged);
    }
    cluster.nodes()[0].freeze().await.unwrap();
    let stuck: Vec<_> = (0..3)
        .flat_map(|_| &first)
        .map(|key| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move { send_claim(&store, &key, Mode::Charge).await })
        })
        .collect();
    // The other nodes do not mark the frozen one as failing so soon: this takes less than their node timeout.
    for _ in 0..10 {
        for key in &others {
            send_claim(&store, key, Mode::Peek).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    for call in stuck {
        assert!(call.await.unwrap().is_err(), "a frozen node has answered");
    }
    cluster.thaw().await.unwrap();
    for key in first.iter().chain(&others) {
        recovers(&store, key, RECOVERED).await;
    }
}

/// As under `Resilience`, whose time limit is shorter than the store's, or when a client hangs up.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_although_every_caller_gives_up_early() {
    let cluster = common::testbed().redis_cluster_with_replicas().await.unwrap();
    let config = RedisConfig::from_url(&cluster.url()).unwrap().timeout(Duration::from_secs(2));
    let store = RedisStore::connect_with(config).await.unwrap();
    let [first, _] = keys_by_node(&cluster);
    assert!(send_claim(&store, &first[0], Mode::Charge).await.unwrap().charged);
    cluster.nodes()[0].freeze().await.unwrap();
    let (since, early) = (Instant::now(), Duration::from_millis(500));
    while !matches!(
        tokio::time::timeout(early, send_claim(&store, &first[0], Mode::Charge)).await,
        Ok(Ok(answer)) if answer.charged
    ) {
        assert!(since.elapsed() < RECOVERED, "the store still waits for the frozen node");
    }
    println!("whole again after {:?}", since.elapsed());
}
