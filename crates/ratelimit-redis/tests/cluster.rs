//! Three nodes of Redis Cluster.
#![cfg(feature = "cluster")]

mod common;

use std::time::Duration;

use ratelimit_core::{Claim, Claims, CounterStore, Decisions, Limit, MeterId, Mode, Refund, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

struct Cluster(ratelimit_testbed::Cluster);

impl Cluster {
    async fn start() -> Self {
        Self(common::testbed().redis_cluster().await.unwrap())
    }

    async fn store(&self) -> RedisStore {
        let config =
            RedisConfig { urls: self.0.urls(), timeout: Duration::from_secs(10), ..RedisConfig::default() };
        RedisStore::connect_cluster(config).await.unwrap()
    }
}

fn claims_on<'a>(limit: &'a Limit, keys: &'a [String], cost: u64) -> Vec<Claim<'a>> {
    let claim = |key: &'a String| Claim {
        id: MeterId { namespace: "n", scope: limit.scope(), key: key.as_bytes() },
        cost,
        meter: limit.meter_for(key.as_bytes()),
    };
    keys.iter().map(claim).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three() {
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

    // Give back and reset over several slots.
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

    // A batch: each for itself, in its order, also around a slice over several slots.
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

    // Scripts that one node has forgotten.
    for node in cluster.0.nodes() {
        assert!(common::say(node.address().port(), "SCRIPT FLUSH").contains("OK"));
    }
    let three = claims_on(&limit, &keys[3..], 9);
    assert!(store.claim(Claims::new(NOW, Mode::Charge, &three).unwrap()).await.unwrap().admitted);

    contended(&store).await;
}

/// Two keys in different slots, claimed together and alone from all sides: never too many, and what was reserved is given
/// back, also by those that were dropped.
async fn contended(store: &RedisStore) {
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
