//! Many concurrent calls: exactly the limit is admitted, nothing deadlocks, and dropped calls do no harm.
//!
//! `RATELIMIT_SHUFFLE_SECONDS` is the duration of the test with shuffled keys (default 3).

mod common;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use common::{Random, Schema};
use ratelimit_core::meter::{Meter, Window};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Limit, Timestamp};
use ratelimit_postgres::PostgresStore;

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

/// Sixteen tasks with a store each, fifty keys in shuffled order: as one slice, or as fifty slices of one batch.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::disallowed_methods)] // runs for that many seconds
async fn shuffled_keys_neither_deadlock_nor_fail() {
    let schema = Schema::new();
    let store = schema.store().await;
    let seconds = std::env::var("RATELIMIT_SHUFFLE_SECONDS").map_or(3, |text| text.parse().unwrap());
    let end = std::time::Instant::now() + Duration::from_secs(seconds);
    let limit: Arc<Limit> = Arc::new("1000000000/s fixed".parse().unwrap());
    let before = deadlocks(&schema).await;
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (limit, config) = (limit.clone(), schema.config());
            tokio::spawn(async move {
                let config = config.connections(2);
                let store = PostgresStore::connect_with(config).await.unwrap();
                let (mut random, mut done) = (Random(task), 0_u64);
                while std::time::Instant::now() < end {
                    shuffled(&store, &limit, &mut random).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    println!("{done} rounds over 50 keys in {seconds} s");
    let claims: Vec<_> = ALL.iter().map(|key| claims_on(std::slice::from_ref(&limit), key, 0)[0]).collect();
    let answer = store.claim(Claims::new(NOW, Mode::Peek, &claims).unwrap()).await.unwrap();
    assert!(answer.verdicts.iter().all(|verdict| verdict.limit - verdict.remaining == done), "{answer:?}");
    // The server reports them within a second or so.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(deadlocks(&schema).await, before, "calls have waited for each other in a circle");
}

/// One more unit of each key, in a random order.
async fn shuffled(store: &PostgresStore, limit: &Limit, random: &mut Random) {
    let mut keys: Vec<&[u8]> = ALL.iter().map(|key| &key[..]).collect();
    for place in (1..keys.len()).rev() {
        keys.swap(place, random.below(place + 1));
    }
    let claim = |key| claims_on(std::slice::from_ref(limit), key, 1)[0];
    let claims: Vec<_> = keys.into_iter().map(claim).collect();
    if random.below(2) == 0 {
        let slice = Claims::new(NOW, Mode::Charge, &claims).unwrap();
        assert!(store.claim(slice).await.unwrap().admitted);
    } else {
        let slices = claims.iter().map(std::slice::from_ref);
        let slices: Vec<_> = slices.map(|claim| Claims::new(NOW, Mode::Charge, claim).unwrap()).collect();
        for answer in store.claim_many(&slices).await {
            assert!(answer.unwrap().admitted);
        }
    }
}

/// Futures that have been polled once and never again, as in a loop that awaits something else.
#[tokio::test(flavor = "multi_thread")]
async fn unpolled_futures_do_not_delay_others() {
    let schema = Schema::new();
    schema.store().await;
    for connections in [1, 2, 3, 4] {
        let config = schema.config().connections(connections).timeout(Duration::from_secs(10));
        let store = PostgresStore::connect_with(config).await.unwrap();
        let limits: Arc<Vec<Limit>> = Arc::new(vec!["1000/h".parse().unwrap()]);
        let mut forgotten = Vec::new();
        while forgotten.len() < connections {
            // If the thread is suspended during the first poll, the answer may be there at its end.
            let mut begun = Box::pin(admits(&store, &limits, b"forgotten"));
            match poll_fn(|context| Poll::Ready(begun.as_mut().poll(context))).await {
                Poll::Ready(admitted) => assert!(admitted),
                Poll::Pending => forgotten.push(begun),
            }
        }
        let others: Vec<_> = (0..50_u8)
            .map(|nth| {
                let (store, limits) = (store.clone(), limits.clone());
                tokio::spawn(async move { admits(&store, &limits, &[nth]).await })
            })
            .collect();
        for other in others {
            assert!(other.await.unwrap(), "{connections} connections");
        }
        for forgotten in forgotten {
            assert!(forgotten.await);
        }
    }
}

/// Batches in which some meters are charged immediately, some have a new segment, some are full and some are new, from many
/// stores: nothing deadlocks, and no segment admits more units than its limit.
#[tokio::test(flavor = "multi_thread")]
async fn mixed_batches_neither_deadlock_nor_exceed_the_limit() {
    const LIMIT: u32 = 8;
    const SEGMENT: u64 = 20_000_000;
    // A segment has 20 batches of some five claims, half of them on the same three meters.
    const STEP: u64 = SEGMENT / 20;
    let schema = Schema::new();
    schema.store().await;
    let rounds = std::env::var("RATELIMIT_SHUFFLE_SECONDS").map_or(3, |text| text.parse().unwrap()) * 150;
    let clock = Arc::new(AtomicU64::new(0));
    let before = deadlocks(&schema).await;
    let tasks: Vec<_> = (0..12)
        .map(|task| {
            let (clock, config) = (clock.clone(), schema.config().connections(2));
            tokio::spawn(async move {
                let store = PostgresStore::connect_with(config).await.unwrap();
                let meter = Meter::Window(Window::new(LIMIT.into(), SEGMENT, 0, false, 0).unwrap());
                let (mut random, mut seen) = (Random(task), Vec::new());
                for _ in 0..rounds {
                    let age = clock.fetch_add(STEP, Ordering::Relaxed);
                    let now = Timestamp::from_nanos(NOW.as_nanos() + age);
                    // Old ones, and about as many that all tasks reach at the same time.
                    let key = |nth: usize| match nth {
                        0..3 => nth as u64,
                        _ => age / STEP / 8 * 3 + nth as u64,
                    };
                    let keys = 2 + random.below(6);
                    let keys: Vec<_> = (0..keys).map(|_| key(random.below(6)).to_be_bytes()).collect();
                    let claim =
                        |key| [Claim { id: MeterId { namespace: "", scope: "s", key }, cost: 1, meter }];
                    let claims: Vec<_> = keys.iter().map(|key| claim(key)).collect();
                    let slices = claims.iter().map(|claim| Claims::new(now, Mode::Charge, claim).unwrap());
                    let answers = store.claim_many(&slices.collect::<Vec<_>>()).await;
                    for (key, answer) in keys.into_iter().zip(answers) {
                        let answer = answer.unwrap();
                        let segment = answer.verdicts[0].receipt.instant().as_nanos() / SEGMENT;
                        seen.push((key, segment, answer.admitted));
                    }
                }
                seen
            })
        })
        .collect();
    let (mut admitted, mut refused) = (HashMap::new(), 0);
    for task in tasks {
        for (key, segment, fits) in task.await.unwrap() {
            *admitted.entry((key, segment)).or_insert(0) += u32::from(fits);
            refused += u32::from(!fits);
        }
    }
    let full = admitted.values().filter(|units| **units == LIMIT).count();
    println!("{} meters and segments, {full} of them full, {refused} refused", admitted.len());
    assert!(admitted.values().all(|units| *units <= LIMIT), "{admitted:?}");
    assert!(full > 10 && refused > 10, "it was not enough: {full} full, {refused} refused");
    // The server reports them within a second or so.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(deadlocks(&schema).await, before, "calls have waited for each other in a circle");
}

async fn deadlocks(schema: &Schema) -> i64 {
    let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(sql).fetch_one(&mut schema.connection().await).await.unwrap()
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
async fn concurrent_resets_and_refunds_do_not_fail() {
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
                        0 => store.reset(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap(),
                        1 => {
                            let refund = |claim: &Claim<'_>| ratelimit_core::store::Refund {
                                id: MeterId { key, scope: limits[0].scope(), namespace: "" },
                                cost: 1,
                                meter: claim.meter,
                                receipt: ratelimit_core::store::Receipt::at(NOW),
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
async fn refusals_leave_no_row_and_wait_for_no_lock() {
    let schema = Schema::new();
    let store = schema.store().await;
    let limits: Vec<Limit> = vec!["1/10s".parse().unwrap(), "5/10s log".parse().unwrap()];
    let claims = claims_on(&limits, b"new", 2);
    let answer = store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap();
    assert!(!answer.admitted);
    assert_eq!(schema.rows().await, 0);
    assert!(admits(&store, &limits, b"known").await);
    assert!(!admits(&store, &limits, b"known").await);

    // Another session locks all rows; a key over its limit is refused nevertheless.
    let mut holder = schema.connection().await;
    let sql = format!("BEGIN; LOCK TABLE \"{}\".meters IN EXCLUSIVE MODE", schema.name);
    sqlx::Executor::execute(&mut holder, sqlx::AssertSqlSafe(sql)).await.unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(10), admits(&store, &limits, b"known")).await;
    assert!(!refused.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_futures_charge_whole_slices_or_nothing() {
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
    // Each was charged as a whole or not at all.
    let used: Vec<_> = answer.verdicts.iter().map(|verdict| verdict.limit - verdict.remaining).collect();
    assert!(used[0] == used[1] && (1..=301).contains(&used[0]), "{used:?}");
}

/// A meter is kept for the slower of two debts, whichever is charged last and whatever is refunded.
#[tokio::test]
async fn a_bucket_of_two_rates_is_kept_for_as_long_as_it_counts() {
    let schema = Schema::new();
    let store = schema.store().await;
    let id = MeterId { namespace: "", scope: "s", key: b"k" };
    let bucket = |interval| {
        ratelimit_core::meter::Meter::Bucket(
            ratelimit_core::meter::Bucket::with_interval(interval, 10).unwrap(),
        )
    };
    let (minute, day) = (bucket(60_000_000_000), bucket(86_400_000_000_000));
    let mut receipts = Vec::new();
    for (meter, cost) in [(day, 2), (minute, 5)] {
        let claim = [Claim { id, cost, meter }];
        let answer = store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await.unwrap();
        receipts.push(answer.verdicts[0].receipt);
    }
    let kept = |time: &str| {
        let sql = format!("SELECT forget_at > now() + interval '{time}' FROM \"{}\".meters", schema.name);
        let schema = &schema;
        async move {
            let mut connection = schema.connection().await;
            sqlx::query_scalar::<_, bool>(sqlx::AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap()
        }
    };
    assert!(kept("47 hours").await && !kept("3 days").await);
    for (meter, receipt) in [(minute, receipts[1]), (day, receipts[0])] {
        let refund = ratelimit_core::store::Refund { id, cost: 1, meter, receipt };
        store.refund(NOW, &[refund]).await.unwrap();
    }
    assert!(kept("23 hours").await);
    // One unit of the day limit and four of the minute limit are left.
    let claim = [Claim { id, cost: 1, meter: day }];
    let answer = store.claim(Claims::new(NOW, Mode::Peek, &claim).unwrap()).await.unwrap();
    assert_eq!(answer.verdicts[0].remaining, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_can_run_concurrently_and_repeatedly() {
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
