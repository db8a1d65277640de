//! Many at once: exactly the limit is admitted, nobody waits for anybody in a circle, and who goes away does no harm.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Random, Schema};
use ratelimit_core::{Claim, Claims, CounterStore, Limit, MeterId, Mode, Timestamp};
use ratelimit_postgres::{PostgresConfig, PostgresStore};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

/// One claim for each limit on `key`.
fn claims_on<'a>(limits: &'a [Limit], key: &'a [u8], cost: u64) -> Vec<Claim<'a>> {
    let claim = |limit: &'a Limit| Claim {
        id: MeterId { namespace: "", scope: limit.scope(), key },
        cost,
        meter: limit.meter_for(key),
    };
    limits.iter().map(claim).collect()
}

async fn admits(store: &PostgresStore, limits: &[Limit], key: &[u8]) -> bool {
    let claims = claims_on(limits, key, 1);
    store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap().admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_admits_exactly_the_limit_to_many_from_two_stores() {
    let schema = Schema::new();
    let stores = [schema.store().await, schema.store().await];
    let kinds: [&[&str]; 9] = [
        &["300/10s fixed"],
        &["300/10s"],
        &["300/10s precision 1s"],
        &["300/10s precision 1s strict"],
        &["300/10s log"],
        &["300/10s"],
        &["300/10000s burst 300"],
        &["300/10000s queue"],
        &["300/10s name a", "400/10s name b", "301/10000s burst 301"],
    ];
    for (round, texts) in kinds.iter().enumerate() {
        let limits: Arc<Vec<Limit>> = Arc::new(texts.iter().map(|text| text.parse().unwrap()).collect());
        let key = Arc::new(round.to_be_bytes());
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let (store, limits, key) = (stores[task % 2].clone(), limits.clone(), key.clone());
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..10 {
                        admitted += u32::from(admits(&store, &limits, &*key).await);
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, 300, "{texts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_over_shuffled_keys_neither_deadlock_nor_fail() {
    let schema = Schema::new();
    schema.store().await;
    let limit: Arc<Limit> = Arc::new("1000000/s fixed".parse().unwrap());
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (limit, config) = (limit.clone(), schema.config());
            tokio::spawn(async move {
                let config = PostgresConfig { connections: 1, ..config };
                let store = PostgresStore::connect_with(config).await.unwrap();
                let mut random = Random(task);
                let mut done = 0_u64;
                for _ in 0..60 {
                    let mut keys: Vec<u8> = (0..50).collect();
                    for place in (1..keys.len()).rev() {
                        keys.swap(place, random.below(place + 1));
                    }
                    let claim = |key: &'static [u8]| Claim {
                        id: MeterId { namespace: "", scope: limit.scope(), key },
                        cost: 1,
                        meter: limit.meter_for(key),
                    };
                    let claims: Vec<_> = keys.iter().map(|key| claim(&ALL[usize::from(*key)])).collect();
                    let answer = store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap();
                    done += u64::from(answer.admitted);
                    if random.below(10) == 0 {
                        store.refund(NOW, &[]).await.unwrap();
                    }
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    let store = schema.store().await;
    let claims: Vec<_> = ALL.iter().map(|key| claims_on(std::slice::from_ref(&limit), key, 0)[0]).collect();
    let answer = store.claim(Claims::new(NOW, Mode::Peek, &claims).unwrap()).await.unwrap();
    assert_eq!(done, 16 * 60);
    assert!(answer.verdicts.iter().all(|verdict| verdict.limit - verdict.remaining == done), "{answer:?}");
}

const ALL: [[u8; 1]; 50] = {
    let mut all = [[0]; 50];
    let mut place = 0;
    while place < 50 {
        #[allow(clippy::cast_possible_truncation)] // below 50
        let byte = place as u8;
        all[place] = [byte];
        place += 1;
    }
    all
};

#[tokio::test(flavor = "multi_thread")]
async fn resets_and_refunds_in_between_do_no_harm() {
    let schema = Schema::new();
    let store = schema.store().await;
    let limits: Arc<Vec<Limit>> = Arc::new(vec!["5/10s log".parse().unwrap(), "5/10s".parse().unwrap()]);
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (store, limits) = (store.clone(), limits.clone());
            tokio::spawn(async move {
                let mut random = Random(task);
                for _ in 0..100 {
                    let key = &ALL[random.below(5)];
                    let claims = claims_on(&limits, key, 1);
                    match random.below(4) {
                        0 => store.reset(&[claims[0].id, claims[1].id]).await.unwrap(),
                        1 => {
                            let refund = |claim: &Claim<'_>| ratelimit_core::Refund {
                                id: MeterId { key, scope: limits[0].scope(), namespace: "" },
                                cost: 1,
                                meter: claim.meter,
                                receipt: NOW,
                            };
                            store.refund(NOW, &[refund(&claims[0])]).await.unwrap();
                        }
                        _ => {
                            store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap();
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_leaves_no_row_and_waits_for_nobody() {
    let schema = Schema::new();
    let store = schema.store().await;
    let limits: Vec<Limit> = vec!["1/10s".parse().unwrap(), "5/10s log".parse().unwrap()];
    let claims = claims_on(&limits, b"new", 2);
    let answer = store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap();
    assert!(!answer.admitted);
    assert_eq!(schema.rows().await, 0);
    assert!(admits(&store, &limits, b"known").await);
    assert!(!admits(&store, &limits, b"known").await);

    // Somebody holds all rows; a key that is over its limit is refused nevertheless.
    let mut holder = schema.connection().await;
    let sql = format!("BEGIN; LOCK TABLE \"{}\".meters IN EXCLUSIVE MODE", schema.name);
    sqlx::Executor::execute(&mut holder, sqlx::AssertSqlSafe(sql)).await.unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(10), admits(&store, &limits, b"known")).await;
    assert!(!refused.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_futures_do_no_harm() {
    let schema = Schema::new();
    let store = schema.store().await;
    let limits: Vec<Limit> = vec!["1000000/10s".parse().unwrap(), "1000000/10s log".parse().unwrap()];
    let mut random = Random(3);
    for _ in 0..300 {
        let patience = Duration::from_micros(random.below(1_500) as u64);
        let _ = tokio::time::timeout(patience, admits(&store, &limits, b"k")).await;
    }
    assert!(admits(&store, &limits, b"k").await);
    let claims = claims_on(&limits, b"k", 0);
    let answer = store.claim(Claims::new(NOW, Mode::Peek, &claims).unwrap()).await.unwrap();
    // Each was charged whole or not at all.
    let used: Vec<_> = answer.verdicts.iter().map(|verdict| verdict.limit - verdict.remaining).collect();
    assert!(used[0] == used[1] && (1..=301).contains(&used[0]), "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_deletes_what_is_forgotten_while_others_are_served() {
    let schema = Schema::new();
    let store = schema.store().await;
    schema
        .run(
            "INSERT INTO {s}.meters (id, forget_at, kind, state)
             SELECT int4send(n), now() - interval '1 minute', 0, '{1,1}' FROM generate_series(1, 100000) AS n",
        )
        .await;
    let limits: Arc<Vec<Limit>> = Arc::new(vec!["1000000/1000s".parse().unwrap()]);
    assert!(admits(&store, &limits, b"kept").await);
    let pruning = tokio::spawn({
        let store = store.clone();
        async move { store.prune().await.unwrap() }
    });
    let mut served = 0;
    while !pruning.is_finished() {
        assert!(admits(&store, &limits, b"kept").await);
        served += 1;
    }
    assert_eq!(pruning.await.unwrap(), 100_000);
    assert_eq!(schema.rows().await, 1);
    assert!(served > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_at_once_and_again() {
    let schema = Schema::new();
    let store = PostgresStore::connect_with(schema.config()).await.unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.migrate().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    store.migrate().await.unwrap();
    assert!(admits(&store, &["1/s".parse().unwrap()], b"k").await);
}
