//! Three nodes of Redis Cluster.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratelimit_core::layers::BatchConfig;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Claim, Claims, Decisions, MeterId, Mode, Receipt, Refund};
use ratelimit_core::{CounterStore, Limit, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

struct Cluster(ratelimit_testbed::Cluster);

impl Cluster {
    async fn start() -> Self {
        Self(common::testbed().redis_cluster().await.unwrap())
    }

    async fn store(&self) -> RedisStore {
        // Checks share round trips even if there are few of them.
        let batch = Some(BatchConfig::default().unbatched(0));
        let config = RedisConfig::from_url(&self.0.url()).unwrap();
        RedisStore::connect_with(config.timeout(Duration::from_secs(10)).batch(batch)).await.unwrap()
    }

    fn slot_of(&self, key: &str) -> u16 {
        let port = self.0.nodes()[2].address().port();
        let reply = common::say(port, &format!("CLUSTER KEYSLOT \"rl:{{n:{key}}}\""));
        reply.trim().trim_start_matches(':').parse().unwrap()
    }

    /// Moves the slot of a key from the node that serves it to the next, meter by meter, as resharding does.
    async fn move_slot(&self, key: &str, round: usize) {
        let port = |node: usize| self.0.nodes()[node % 3].address().port();
        let slot = self.slot_of(key);
        let from = usize::from(slot > 5460) + usize::from(slot > 10_922) + round;
        let id = |node| common::say(port(node), "CLUSTER MYID").lines().nth(1).unwrap().to_owned();
        let (source, target) = (id(from), id(from + 1));
        let tell = |node: usize, line: String| {
            let reply = common::say(port(node), &line);
            assert!(reply.contains("OK") || reply.contains("NOKEY"), "{line}: {reply}");
        };
        tell(from + 1, format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        tell(from, format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
        loop {
            let keys = common::say(port(from), &format!("CLUSTER GETKEYSINSLOT {slot} 1"));
            let Some(name) = keys.lines().nth(2) else { break };
            tell(from, format!("MIGRATE 127.0.0.1 {} \"{name}\" 0 5000", port(from + 1)));
            // Time for calls that find one meter of a key on this node and the other on the next.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for node in [from + 1, from, from + 2] {
            tell(node, format!("CLUSTER SETSLOT {slot} NODE {target}"));
        }
    }
}

fn claim_on<'a>(limit: &'a Limit, key: &'a str, cost: u64) -> Claim<'a> {
    let id = MeterId { namespace: "n", scope: limit.scope(), key: key.as_bytes() };
    Claim { id, cost, meter: limit.meter_for(key.as_bytes()) }
}

fn claims_on<'a>(limit: &'a Limit, keys: &'a [String], cost: u64) -> Vec<Claim<'a>> {
    keys.iter().map(|key| claim_on(limit, key, cost)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_decides_through_lost_scripts_contention_and_resharding() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    assert_eq!(store.promises().decisions, Decisions::ExactPerKey);
    let limit: Limit = "10/min".parse().unwrap();
    let keys: Vec<_> = (0..6).map(|key| format!("key {key}")).collect();

    // Several slots: all or nothing, and the order of the verdicts is that of the claims.
    let last = claims_on(&limit, &keys[5..], 10);
    assert!(store.claim(Claims::new(NOW, Mode::Charge, &last).unwrap()).await.unwrap().admitted);
    let all = claims_on(&limit, &keys, 1);
    let refused = store.claim(Claims::new(NOW, Mode::Charge, &all).unwrap()).await.unwrap();
    assert!(!refused.admitted && !refused.charged);
    let fits: Vec<_> = refused.verdicts.iter().map(|verdict| (verdict.fits, verdict.remaining)).collect();
    assert_eq!(fits, [(true, 10), (true, 10), (true, 10), (true, 10), (true, 10), (false, 0)]);
    let five = claims_on(&limit, &keys[..5], 4);
    let admitted = store.claim(Claims::new(NOW, Mode::Charge, &five).unwrap()).await.unwrap();
    assert!(
        admitted.charged && admitted.verdicts.iter().all(|verdict| verdict.remaining == 6),
        "{admitted:?}"
    );

    // Refund and reset over several slots.
    let refunds: Vec<_> = five
        .iter()
        .map(|claim| Refund {
            id: claim.id,
            cost: 3,
            meter: claim.meter,
            receipt: admitted.verdicts[0].receipt,
        })
        .collect();
    store.refund(NOW, &refunds).await.unwrap();
    let peeked = store.claim(Claims::new(NOW, Mode::Peek, &five).unwrap()).await.unwrap();
    assert!(peeked.verdicts.iter().all(|verdict| verdict.remaining == 9), "{peeked:?}");
    store.reset(Claims::new(NOW, Mode::Charge, &all).unwrap()).await.unwrap();
    let peeked = store.claim(Claims::new(NOW, Mode::Peek, &all).unwrap()).await.unwrap();
    assert!(peeked.verdicts.iter().all(|verdict| verdict.remaining == 10), "{peeked:?}");

    // A batch: slices are decided separately and in order, also around a slice over several slots.
    let singles: Vec<_> = (0..30).map(|nth| claims_on(&limit, &keys[nth % 3..=nth % 3], 1)).collect();
    let mut slices: Vec<_> =
        singles.iter().map(|claims| Claims::new(NOW, Mode::Charge, claims).unwrap()).collect();
    slices.insert(15, Claims::new(NOW, Mode::Charge, &all).unwrap());
    let answers: Vec<_> = store.claim_many(&slices).await.into_iter().map(Result::unwrap).collect();
    let admitted: Vec<_> = answers.iter().map(|answer| answer.admitted).collect();
    assert!(
        admitted[..28].iter().all(|admitted| *admitted) && !admitted[28..].iter().any(|admitted| *admitted)
    );
    assert_eq!(answers[15].verdicts.iter().map(|v| v.remaining).collect::<Vec<_>>(), [4, 4, 4, 9, 9, 9]);

    // A node has lost the scripts.
    for node in cluster.0.nodes() {
        assert!(common::say(node.address().port(), "SCRIPT FLUSH").contains("OK"));
    }
    let three = claims_on(&limit, &keys[3..], 9);
    assert!(store.claim(Claims::new(NOW, Mode::Charge, &three).unwrap()).await.unwrap().admitted);

    check_with_lost_scripts(&cluster, &store).await;
    check_under_contention(&store).await;
    check_while_slots_move(&cluster, &store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_cluster_connection_survives_resharding() {
    let cluster = Cluster::start().await;
    let config = RedisConfig::from_url(&cluster.0.url()).unwrap().timeout(Duration::from_secs(10));
    let store = common::ways::Way::ClusterConnection.open(&config, &cluster.0.urls()).await.unwrap();
    check_under_contention(&store).await;
    check_while_slots_move(&cluster, &store).await;
}

/// On one thread, so that the checks are sent together.
#[tokio::test]
async fn checks_do_not_wait_for_one_that_a_frozen_node_decides_now() {
    let cluster = Cluster::start().await;
    let batch = Some(BatchConfig::default().unbatched(0));
    let config = RedisConfig::from_url(&cluster.0.url()).unwrap().timeout(Duration::from_secs(3));
    let store = RedisStore::connect_with(config.batch(batch)).await.unwrap();
    let keys: Vec<_> =
        (0..60).map(|nth| format!("key {nth}")).filter(|key| cluster.slot_of(key) <= 5460).collect();
    let limit: Limit = "10/min".parse().unwrap();
    cluster.move_slot(&keys[0], 0).await;
    cluster.0.nodes()[1].freeze().await.unwrap();
    let check = |key: String| {
        let (store, limit) = (store.clone(), limit.clone());
        tokio::spawn(async move {
            let claim = [claim_on(&limit, &key, 1)];
            store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await
        })
    };
    let mut calls: Vec<_> = keys.into_iter().map(check).collect();
    assert!(calls.remove(0).await.unwrap().is_err(), "a frozen node has answered");
    for call in calls {
        assert!(call.await.unwrap().unwrap().charged);
    }
}

#[tokio::test]
async fn a_reset_or_refund_of_which_one_part_fails_is_applied_on_the_other_nodes() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let limit: Limit = "10/min".parse().unwrap();
    // Slots of all nodes.
    let keys: Vec<_> = (0..20).map(|nth| format!("key {nth}")).collect();
    let claims = claims_on(&limit, &keys, 1);
    let refunds: Vec<_> = claims
        .iter()
        .map(|claim| Refund { id: claim.id, cost: 1, meter: claim.meter, receipt: Receipt::at(NOW) })
        .collect();
    let slice = Claims::new(NOW, Mode::Charge, &claims).unwrap();
    for _ in 0..3 {
        assert!(store.claim(slice).await.unwrap().charged);
    }
    cluster.0.nodes()[0].kill().await.unwrap();
    let others: Vec<_> = claims.iter().zip(&keys).filter(|(_, key)| cluster.slot_of(key) > 5460).collect();
    assert!(others.len() >= 5);
    let remain = async |units: u64| {
        for (claim, key) in &others {
            let peek = Claims::new(NOW, Mode::Peek, std::slice::from_ref(claim)).unwrap();
            assert_eq!(store.claim(peek).await.unwrap().verdicts[0].remaining, units, "{key}");
        }
    };
    assert_eq!(store.refund(NOW, &refunds).await.unwrap_err().applied(), Applied::Unknown);
    remain(8).await;
    assert_eq!(store.reset(slice).await.unwrap_err().applied(), Applied::Unknown);
    remain(10).await;
}

/// Checks that share round trips to nodes without the script: each is decided once.
async fn check_with_lost_scripts(cluster: &Cluster, store: &RedisStore) {
    let limit: Limit = "20/min".parse().unwrap();
    for node in cluster.0.nodes() {
        assert!(common::say(node.address().port(), "SCRIPT FLUSH").contains("OK"));
    }
    let tasks: Vec<_> = (0..240usize)
        .map(|nth| {
            let (store, limit) = (store.clone(), limit.clone());
            tokio::spawn(async move {
                let key = format!("forgotten {}", nth % 8);
                let claim = [claim_on(&limit, &key, 1)];
                let answer = store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await;
                (nth % 8, answer.unwrap().admitted)
            })
        })
        .collect();
    let mut admitted = [0; 8];
    for task in tasks {
        let (key, fits) = task.await.unwrap();
        admitted[key] += u64::from(fits);
    }
    assert_eq!(admitted, [20; 8]);
}

/// Slots move from node to node while several tasks claim keys in them, alone and two meters at once: every call is
/// answered, and the counts equal what was admitted.
async fn check_while_slots_move(cluster: &Cluster, store: &RedisStore) {
    let limits: [Limit; 2] = ["100000/h", "100000/h fixed"].map(|text| text.parse().unwrap());
    let claims_of = |limits: &[Limit], nth: usize| -> Vec<(String, Limit)> {
        let range = [0..1, 1..2, 0..2][nth % 3].clone();
        limits[range].iter().map(|limit| (format!("moving{}", nth % 5), limit.clone())).collect()
    };
    let over = Arc::<AtomicBool>::default();
    let task = |task: usize| {
        let (store, limits, over) = (store.clone(), limits.clone(), over.clone());
        tokio::spawn(async move {
            let mut counts = std::collections::HashMap::new();
            for nth in (task..).step_by(4) {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let wanted = claims_of(&limits, nth);
                let claims: Vec<_> = wanted.iter().map(|(key, limit)| claim_on(limit, key, 1)).collect();
                let answer = store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await;
                assert!(answer.as_ref().is_ok_and(|answer| answer.charged), "{answer:?}");
                for (key, limit) in wanted {
                    *counts.entry((key, limit.scope().to_owned())).or_insert(0) += 1;
                }
            }
            counts
        })
    };
    let tasks: Vec<_> = (0..4).map(task).collect();
    for round in 0..3 {
        for key in 0..5 {
            cluster.move_slot(&format!("moving{key}"), round).await;
        }
    }
    over.store(true, Ordering::SeqCst);
    let mut counts = std::collections::HashMap::<_, u64>::new();
    for task in tasks {
        for (meter, count) in task.await.unwrap() {
            *counts.entry(meter).or_default() += count;
        }
    }
    assert_eq!(counts.len(), 10);
    for ((key, scope), count) in counts {
        let limit = limits.iter().find(|limit| limit.scope() == scope).unwrap();
        let claim = [claim_on(limit, &key, 1)];
        let peeked = store.claim(Claims::new(NOW, Mode::Peek, &claim).unwrap()).await.unwrap();
        assert_eq!(100_000 - peeked.verdicts[0].remaining, count, "{key} {scope}");
    }
}

/// Two keys in different slots, claimed together and alone by many tasks: never too many are admitted, and what was
/// reserved is given back, also by dropped calls.
async fn check_under_contention(store: &RedisStore) {
    let limit: Limit = "50/min".parse().unwrap();
    let keys: Vec<_> = (0..2).map(|key| format!("contended {key}")).collect();
    let tasks: Vec<_> = (0..120usize)
        .map(|nth| {
            let (store, limit, keys) = (store.clone(), limit.clone(), keys.clone());
            tokio::spawn(async move {
                let range = match nth % 3 {
                    0 => 0..2,
                    1 => 0..1,
                    _ => 1..2,
                };
                let claims = claims_on(&limit, &keys[range.clone()], 1);
                let claim = store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap());
                let admitted = claim.await.unwrap().admitted;
                [0, 1].map(|key| u64::from(admitted && range.contains(&key)))
            })
        })
        .collect();
    let mut counts = [0, 0];
    for task in tasks {
        let admitted = task.await.unwrap();
        counts = [counts[0] + admitted[0], counts[1] + admitted[1]];
    }
    let both = claims_on(&limit, &keys, 1);
    let peeked = store.claim(Claims::new(NOW, Mode::Peek, &both).unwrap()).await.unwrap();
    for (verdict, count) in peeked.verdicts.iter().zip(counts) {
        assert!(count <= 50);
        assert_eq!(verdict.remaining, 50 - count, "what was counted is what was admitted");
    }
}
