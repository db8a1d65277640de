//! Expired meters are deleted in the background under load, and the table does not grow without bound.
//!
//! `RATELIMIT_EXPIRED_ROWS` is the initial number of expired meters (default 60,000); a million takes some minutes.
#![allow(clippy::disallowed_methods)] // prints how long it took

mod common;

use std::time::{Duration, Instant};

use common::{Schema, own_server};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Refund, Verdict};
use ratelimit_core::{CounterStore as _, Limit, RateLimiter, Timestamp};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_testbed::{Postgres, Server};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_003);

async fn query(server: &Server, sql: &str) -> i64 {
    let mut connection = PgConnection::connect(server.url()).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_catches_up_while_calls_are_served() {
    let rows = std::env::var("RATELIMIT_EXPIRED_ROWS").map_or(60_000, |text| text.parse::<i64>().unwrap());
    let arguments = ["-c", "autovacuum_naptime=1s"].map(str::to_owned).to_vec();
    let server = own_server(Postgres { arguments, ..Postgres::default() }).await;
    let config = PostgresConfig::from_url(server.url())
        .unwrap()
        .prune_every(Duration::from_millis(200))
        .timeout(Duration::from_secs(20));
    let store = PostgresStore::connect_with(config).await.unwrap();
    store.migrate().await.unwrap();
    let limiter = RateLimiter::new(store, "1000000000/1000s".parse::<Limit>().unwrap());
    let mut sizes = Vec::new();
    for round in 0..4 {
        fill(&server, rows, round).await;
        let before = vacuums(&server).await;
        let full = query(&server, "SELECT pg_total_relation_size('ratelimit.meters')").await;
        served_until_pruned(&server, &limiter, rows).await;
        vacuumed(&server, before).await;
        let size = query(&server, "SELECT pg_total_relation_size('ratelimit.meters')").await;
        println!("round {round}: {full} bytes when full, {size} afterwards");
        sizes.push(full);
    }
    // Rounds reuse the space that earlier ones have freed; autovacuum may come too late for the next one. If nothing were freed,
    // the last would be four times as large as the first.
    assert!(sizes[3] < sizes[0] * 3, "{sizes:?}");
}

async fn fill(server: &Server, rows: i64, round: i64) {
    let sql = format!(
        "WITH made AS (
            INSERT INTO ratelimit.meters (id, forget_at, kind, state)
            SELECT int8send({round} * 10000000000 + n), now() - interval '1 minute', 0, '{{1,1,0}}'
            FROM generate_series(1, {rows}) AS n RETURNING 1
        ) SELECT count(*) FROM made"
    );
    assert_eq!(query(server, &sql).await, rows);
}

/// Runs checks on keys of all ages until the expired meters are gone.
async fn served_until_pruned(server: &Server, limiter: &RateLimiter<PostgresStore>, rows: i64) {
    let began = Instant::now();
    let (mut served, mut slowest) = (0_u32, Duration::ZERO);
    let expired =
        "SELECT count(*) FROM (SELECT FROM ratelimit.meters WHERE forget_at < now() LIMIT 1) AS old";
    loop {
        for _ in 0..50 {
            let since = Instant::now();
            assert!(limiter.check(&format!("user:{}", served % 100)).await.unwrap().allowed());
            slowest = slowest.max(since.elapsed());
            served += 1;
        }
        if query(server, expired).await == 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(600), "{rows} meters are not pruned after ten minutes");
    }
    println!(
        "{rows} pruned within {:.1?}; {served} checks meanwhile, the slowest {slowest:.1?}",
        began.elapsed()
    );
}

/// How often autovacuum has processed the table.
async fn vacuums(server: &Server) -> i64 {
    query(server, "SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'meters'").await
}

/// Waits until autovacuum has processed the deleted rows.
async fn vacuumed(server: &Server, before: i64) {
    let dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'meters'";
    for _ in 0..600 {
        if vacuums(server).await > before && query(server, dead).await < 6_000 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("two minutes, and nobody has vacuumed");
}

/// Which statement decides a slice: the one for a single claim, the one for many, or the general one.
#[derive(Clone, Copy, Debug)]
enum Together {
    Alone,
    Slices,
    Claims,
}

/// A meter that expires while it still counts would admit its user again.
#[tokio::test]
async fn meters_are_kept_as_long_as_they_count_plus_the_slack() {
    let schema = Schema::new();
    let store = schema.store().await;
    let slack = schema.config().clock_slack.as_millis();
    let mut connection = schema.connection().await;
    for text in [
        "9/min",
        "9/min fixed",
        "9/min strict precision 1min",
        "9/min precision 10s",
        "6/min bucket",
        "9/min log",
    ] {
        let limit: Limit = text.parse().unwrap();
        for together in [Together::Alone, Together::Slices, Together::Claims] {
            schema.run("TRUNCATE {s}.meters").await;
            for (nth, mode) in [Mode::Charge, Mode::Charge, Mode::Charge, Mode::Force].into_iter().enumerate()
            {
                let verdicts = charge(&store, &limit, together, mode).await;
                let counts = verdicts[0].reset_at.since(NOW).as_millis();
                let left = least_left(&mut connection, &schema).await;
                // The test may be five seconds late.
                assert!(
                    left + 5_000 > counts + slack && left <= counts + slack + 1,
                    "{text}, {together:?}, charge {nth}: kept for {left} ms, counts for {counts} ms"
                );
            }
        }
        let last = charge(&store, &limit, Together::Alone, Mode::Force).await;
        let before = last[0].reset_at.since(NOW).as_millis();
        let refund =
            Refund { id: id(&limit, b"0"), cost: 1, meter: limit.meter_for(b"0"), receipt: last[0].receipt };
        store.refund(NOW, &[refund]).await.unwrap();
        let claim = [Claim { id: refund.id, cost: 0, meter: refund.meter }];
        let peeked = store.claim(Claims::new(NOW, Mode::Peek, &claim).unwrap()).await.unwrap();
        let counts = peeked.verdicts[0].reset_at.since(NOW).as_millis();
        let left = least_left(&mut connection, &schema).await;
        assert!(
            left + 5_000 > counts + slack && left <= before + slack + 1,
            "{text}, given back: kept for {left} ms, counts for {counts} ms"
        );
    }
}

/// Limits with different leases share one log: when the lease is changed, or differs between callers.
#[tokio::test]
async fn a_log_is_kept_for_the_longest_of_its_leases() {
    let schema = Schema::new();
    let store = schema.store().await;
    let mut connection = schema.connection().await;
    for together in [Together::Alone, Together::Slices, Together::Claims] {
        schema.run("TRUNCATE {s}.meters").await;
        for lease in ["1h", "1min"] {
            let limit: Limit = format!("9 at once lease {lease}").parse().unwrap();
            charge(&store, &limit, together, Mode::Charge).await;
            let left = least_left(&mut connection, &schema).await;
            assert!(left > 3_500_000, "{together:?}, under {lease}: kept for {left} ms");
        }
    }
}

fn id<'a>(limit: &'a Limit, key: &'a [u8]) -> MeterId<'a> {
    MeterId { namespace: "", scope: limit.scope(), key }
}

/// Charges one key, or three together.
async fn charge(store: &PostgresStore, limit: &Limit, together: Together, mode: Mode) -> Vec<Verdict> {
    let claim = |key| Claim { id: id(limit, key), cost: 1, meter: limit.meter_for(key) };
    let all = [b"0", b"1", b"2"].map(|key| claim(key));
    let slice = |claims| Claims::new(NOW, mode, claims).unwrap();
    let slices: Vec<Claims<'_>> = match together {
        Together::Alone => vec![slice(&all[..1])],
        Together::Slices => all.chunks(1).map(slice).collect(),
        Together::Claims => vec![slice(&all)],
    };
    let answers = store.claim_many(&slices).await;
    answers.into_iter().flat_map(|answer| answer.unwrap().verdicts).collect()
}

/// The remaining milliseconds of the meter that expires first.
async fn least_left(connection: &mut PgConnection, schema: &Schema) -> u128 {
    let sql = format!(
        "SELECT floor(extract(epoch FROM min(forget_at) - clock_timestamp()) * 1000)::bigint FROM \"{}\".meters",
        schema.name
    );
    let left: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap();
    u128::try_from(left).unwrap_or(0)
}

/// If what began a step is refunded, the step begins anew, and the meter counts for longer.
#[tokio::test]
async fn a_step_that_begins_anew_is_kept_until_its_end() {
    let schema = Schema::new();
    let store = schema.store().await;
    let mut connection = schema.connection().await;
    let limit: Limit = "100/h from first request".parse().unwrap();
    let later = NOW + Duration::from_secs(1_800);
    let charge = async |now, cost| {
        let claim = [Claim { id: id(&limit, b"k"), cost, meter: limit.meter_for(b"k") }];
        let answer = store.claim(Claims::new(now, Mode::Charge, &claim).unwrap()).await.unwrap();
        answer.verdicts[0].receipt
    };
    let receipt = charge(NOW, 1).await;
    charge(later, 99).await;
    let before = least_left(&mut connection, &schema).await;
    let refund = Refund { id: id(&limit, b"k"), cost: 1, meter: limit.meter_for(b"k"), receipt };
    store.refund(later, &[refund]).await.unwrap();
    let after = least_left(&mut connection, &schema).await;
    assert!(before < 3_600_000 && after > 3_600_000 && after <= before + 1_800_001, "{before}, {after}");
}

#[tokio::test]
async fn without_an_interval_nothing_is_pruned() {
    let schema = Schema::new();
    schema.store().await;
    let store = PostgresStore::connect_with(schema.config().prune_every(Duration::ZERO)).await.unwrap();
    schema
        .run(
            "INSERT INTO {s}.meters (id, forget_at, kind, state) \
             VALUES ('k', now() - interval '1 day', 0, '{1,1,0}')",
        )
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(schema.rows().await, 1);
    assert_eq!(store.prune().await.unwrap(), 1);
}
