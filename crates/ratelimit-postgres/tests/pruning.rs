//! Forgotten meters are deleted in the background while calls are served, and the table does not grow for ever.
//!
//! `RATELIMIT_EXPIRED_ROWS` is how many forgotten meters there are at first (default 60,000); a million takes some minutes.
#![allow(clippy::disallowed_methods)] // prints how long it took

mod common;

use std::time::{Duration, Instant};

use common::own_server;
use ratelimit_core::{Limit, RateLimiter};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_testbed::{Postgres, Server};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

async fn ask(server: &Server, sql: &str) -> i64 {
    let mut connection = PgConnection::connect(server.url()).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_catches_up_while_calls_are_served() {
    let rows = std::env::var("RATELIMIT_EXPIRED_ROWS").map_or(60_000, |text| text.parse::<i64>().unwrap());
    let arguments = ["-c", "autovacuum_naptime=1s"].map(str::to_owned).to_vec();
    let server = own_server(Postgres { arguments, ..Postgres::default() }).await;
    let config = PostgresConfig {
        prune_every: Some(Duration::from_millis(200)),
        timeout: Duration::from_secs(20),
        ..PostgresConfig::from_url(server.url()).unwrap()
    };
    let store = PostgresStore::connect_with(config).await.unwrap();
    store.migrate().await.unwrap();
    let limiter = RateLimiter::new(store, "1000000000/1000s".parse::<Limit>().unwrap());
    let mut sizes = Vec::new();
    for round in 0..4 {
        fill(&server, rows, round).await;
        let before = vacuums(&server).await;
        let full = ask(&server, "SELECT pg_total_relation_size('ratelimit.meters')").await;
        served_until_pruned(&server, &limiter, rows).await;
        vacuumed(&server, before).await;
        let size = ask(&server, "SELECT pg_total_relation_size('ratelimit.meters')").await;
        println!("round {round}: {full} bytes when full, {size} afterwards");
        sizes.push(full);
    }
    // What a round leaves free the next one uses again; nothing is added for each round.
    assert!(sizes[3] < sizes[0] * 2, "{sizes:?}");
}

async fn fill(server: &Server, rows: i64, round: i64) {
    let sql = format!(
        "WITH made AS (
            INSERT INTO ratelimit.meters (id, forget_at, kind, state)
            SELECT int8send({round} * 10000000000 + n), now() - interval '1 minute', 0, '{{1,1,0}}'
            FROM generate_series(1, {rows}) AS n RETURNING 1
        ) SELECT count(*) FROM made"
    );
    assert_eq!(ask(server, &sql).await, rows);
}

/// Checks go on, on keys of all ages, until the forgotten meters are gone.
async fn served_until_pruned(server: &Server, limiter: &RateLimiter<PostgresStore>, rows: i64) {
    let began = Instant::now();
    let (mut served, mut slowest) = (0_u32, Duration::ZERO);
    while ask(
        server,
        "SELECT count(*) FROM (SELECT FROM ratelimit.meters WHERE forget_at < now() LIMIT 1) AS old",
    )
    .await
        > 0
    {
        for _ in 0..50 {
            let since = Instant::now();
            assert!(limiter.check(&format!("user:{}", served % 100)).await.unwrap().allowed());
            slowest = slowest.max(since.elapsed());
            served += 1;
        }
        assert!(began.elapsed() < Duration::from_secs(600), "{rows} meters are not pruned after ten minutes");
    }
    println!(
        "{rows} pruned within {:.1?}; {served} checks meanwhile, the slowest {slowest:.1?}",
        began.elapsed()
    );
    assert!(served > 0);
}

/// How often autovacuum has been through the table.
async fn vacuums(server: &Server) -> i64 {
    ask(server, "SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'meters'").await
}

/// Waits until autovacuum has been through what was deleted.
async fn vacuumed(server: &Server, before: i64) {
    let dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'meters'";
    for _ in 0..600 {
        if vacuums(server).await > before && ask(server, dead).await < 6_000 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("two minutes, and nobody has vacuumed");
}
