//! A server that is killed, frozen, down from the start, closed, read-only or full: an error in time that says what to do,
//! and the store recovers when the server does.
#![allow(clippy::disallowed_methods)] // deadlines are kept on the machine's clock

mod common;

use std::time::{Duration, Instant};

use common::own_server;
use common::relay::Relay;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, Timestamp};
use ratelimit_postgres::{Logged, PostgresConfig, PostgresStore};
use ratelimit_testbed::{Postgres, Server};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const TIMEOUT: Duration = Duration::from_millis(500);
/// The time limit of calls that should succeed, even on a slow machine.
const PATIENT: Duration = Duration::from_secs(20);
/// No call may take longer, even on a slow machine.
const HUNG: Duration = Duration::from_secs(60);

fn config(server: &Server) -> PostgresConfig {
    PostgresConfig::from_url(server.url()).unwrap().timeout(TIMEOUT).prune_every(None)
}

async fn store(config: &PostgresConfig) -> PostgresStore {
    let patient = config.clone().timeout(PATIENT);
    PostgresStore::connect_with(patient).await.unwrap().migrate().await.unwrap();
    PostgresStore::lazy(config.clone()).unwrap()
}

async fn charge(store: &PostgresStore) -> Result<Answer, StoreError> {
    let limit: Limit = "1000000/3000d".parse().unwrap();
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"private" };
    let claim = [Claim { id, cost: 1, meter: limit.meter_for(b"private") }];
    let since = Instant::now();
    let claims = Claims::new(Timestamp::from_secs(1_800_000_000), Mode::Charge, &claim).unwrap();
    let answer = store.claim(claims).await;
    assert!(since.elapsed() < HUNG, "{:?}", since.elapsed());
    answer
}

/// The error names the store, the kind and the address, and contains no secrets.
fn check(error: &StoreError, kind: ErrorKind, applied: Applied, retryable: bool) {
    assert_eq!((error.kind(), error.applied(), error.is_retryable()), (kind, applied, retryable), "{error}");
    assert_eq!(error.store(), "postgres");
    assert!(error.address().is_some_and(|address| address.starts_with("127.0.0.1:")), "{error}");
    let text = format!("{error} {error:?}");
    assert!(!text.contains("private") && !text.contains("s3cret"), "{text}");
}

/// The same store recovers.
async fn recovers(store: &PostgresStore) -> u64 {
    let since = Instant::now();
    loop {
        match charge(store).await {
            Ok(answer) => return answer.verdicts[0].remaining,
            Err(error) => assert!(since.elapsed() < 2 * HUNG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn run(server: &Server, sql: &str) {
    let mut connection = PgConnection::connect(server.url()).await.unwrap();
    sqlx::raw_sql("SET default_transaction_read_only = off").execute(&mut connection).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_killed_server_is_used_again_after_its_start() {
    let server = own_server(Postgres::default()).await;
    for (logged, schema) in [(Logged::Unlogged, "light"), (Logged::Logged, "heavy")] {
        let store = store(&config(&server).logged(logged).schema(schema)).await;
        let before = recovers(&store).await;
        for _ in 0..2 {
            server.kill().await.unwrap();
            let first = charge(&store).await.unwrap_err();
            // The connection was open, so the first claim may have been sent; after that nothing listens.
            assert!(first.is_retryable() && first.kind() == ErrorKind::Unreachable, "{first}");
            check(&charge(&store).await.unwrap_err(), ErrorKind::Unreachable, Applied::No, true);
            server.start().await.unwrap();
            let after = recovers(&store).await;
            match logged {
                Logged::Unlogged => assert_eq!(after, before, "an unlogged table begins anew"),
                Logged::Logged => assert!(after < before, "a logged table has lost a charge"),
            }
        }
    }
}

#[tokio::test]
async fn calls_to_a_frozen_server_time_out_until_it_is_thawed() {
    let server = own_server(Postgres::default()).await;
    let store = store(&config(&server)).await;
    recovers(&store).await;
    server.freeze().await.unwrap();
    for applied in [Applied::Unknown, Applied::No] {
        let since = Instant::now();
        // The first call has been sent; the next cannot even connect.
        let error = charge(&store).await.unwrap_err();
        let kind = if applied == Applied::No { error.kind() } else { ErrorKind::Timeout };
        assert!(matches!(kind, ErrorKind::Timeout | ErrorKind::Unreachable), "{error}");
        check(&error, kind, applied, true);
        assert!(since.elapsed() >= TIMEOUT);
    }
    server.thaw().await.unwrap();
    recovers(&store).await;
}

#[tokio::test]
async fn a_server_down_at_the_start_is_used_once_it_is_up() {
    let server = own_server(Postgres::default()).await;
    drop(store(&config(&server)).await);
    server.kill().await.unwrap();
    let error = PostgresStore::connect_with(config(&server)).await.unwrap_err();
    check(&error, ErrorKind::Unreachable, Applied::No, true);
    let lazy = PostgresStore::lazy(config(&server)).unwrap();
    check(&charge(&lazy).await.unwrap_err(), ErrorKind::Unreachable, Applied::No, true);
    server.start().await.unwrap();
    recovers(&lazy).await;
}

#[tokio::test]
async fn a_wrong_password_is_denied() {
    let server = own_server(Postgres { password: Some("s3cret-right".into()), ..Postgres::default() }).await;
    let config = config(&server).timeout(Duration::from_secs(9));
    recovers(&store(&config).await).await;
    let wrong = config.server.clone().password("s3cret-wrong");
    let wrong = config.server(wrong);
    let error = PostgresStore::connect_with(wrong.clone()).await.unwrap_err();
    check(&error, ErrorKind::Denied, Applied::No, false);
    let lazy = PostgresStore::lazy(wrong).unwrap();
    let error = charge(&lazy).await.unwrap_err();
    check(&error, ErrorKind::Denied, Applied::No, false);
    assert!(error.to_string().contains("pg_hba.conf"), "{error}");
}

#[tokio::test]
async fn a_read_only_database_is_reported() {
    let server = own_server(Postgres::default()).await;
    drop(store(&config(&server)).await);
    let store = PostgresStore::lazy(config(&server)).unwrap();
    run(&server, "ALTER DATABASE postgres SET default_transaction_read_only = on").await;
    check(&charge(&store).await.unwrap_err(), ErrorKind::ReadOnly, Applied::No, true);
    run(&server, "ALTER DATABASE postgres RESET ALL").await;
    recovers(&store).await;
}

/// The name leads to a standby for a while, and then to the primary again.
#[tokio::test]
async fn connections_to_a_standby_are_not_kept() {
    let primary = own_server(Postgres::default()).await;
    for (logged, schema) in [(Logged::Unlogged, "light"), (Logged::Logged, "heavy")] {
        drop(store(&config(&primary).logged(logged).schema(schema)).await);
    }
    let standby = own_server(Postgres { primary: Some(primary.address()), ..Postgres::default() }).await;
    for (schema, says) in [("light", "unlogged"), ("heavy", "does not accept writes")] {
        let relay = Relay::to(&standby.address()).await;
        let config = config(&primary).schema(schema);
        let server = config.server.clone().port(relay.port());
        let store = PostgresStore::lazy(config.server(server).timeout(PATIENT)).unwrap();
        for _ in 0..2 {
            let error = charge(&store).await.unwrap_err();
            check(&error, ErrorKind::ReadOnly, Applied::No, true);
            assert!(error.to_string().contains(says) && error.to_string().contains("primary"), "{error}");
        }
        relay.lead_to(&primary.address());
        charge(&store).await.unwrap();
    }
}

/// The disk with the table is full: its file is a link to `/dev/full`, where every write fails accordingly.
#[tokio::test]
async fn a_full_disk_is_reported_until_it_has_room() {
    let server = own_server(Postgres::default()).await;
    let store = store(&config(&server)).await;
    let replace = |with: &str| {
        format!(
            "DO $$ DECLARE file text := pg_relation_filepath('ratelimit.meters'); BEGIN
             EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat > /dev/null; rm ' || file || '; {with} ' || file);
             END $$; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ratelimit'"
        )
    };
    run(&server, &replace("ln -s /dev/full")).await;
    let error = charge(&store).await.unwrap_err();
    check(&error, ErrorKind::Full, Applied::No, true);
    check(&charge(&store).await.unwrap_err(), ErrorKind::Full, Applied::No, true);
    run(&server, &replace("umask 077; touch")).await;
    recovers(&store).await;
}
