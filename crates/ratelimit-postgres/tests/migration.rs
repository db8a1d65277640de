//! Migrations lock out no calls, leave newer functions as they are, and say what is wrong.

#![allow(clippy::disallowed_methods)] // deadlines are kept on the machine's clock

mod common;

use std::time::{Duration, Instant};

use common::{Schema, url};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, Timestamp};
use ratelimit_postgres::PostgresStore;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor};

async fn try_claim(store: &PostgresStore) -> Result<Answer, StoreError> {
    let limit: Limit = "1000/10s".parse().unwrap();
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claim = [Claim { id, cost: 1, meter: limit.meter_for(b"k") }];
    let claims = Claims::new(Timestamp::from_secs(1_000_000), Mode::Charge, &claim).unwrap();
    store.claim(claims).await
}

async fn claim(store: &PostgresStore) {
    assert!(try_claim(store).await.unwrap().admitted);
}

/// No machine is so slow that a migration takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The migration has to change the table, for which it waits for transactions that use it.
const OUTDATED: &str = "ALTER TABLE {s}.meters ALTER COLUMN state SET STORAGE EXTENDED; \
                        COMMENT ON TABLE {s}.meters IS 'older'";

async fn number(schema: &Schema, sql: &str) -> i64 {
    let sql = sql.replace("{s}", &format!("\"{}\"", schema.name));
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut schema.connection().await).await.unwrap()
}

/// A transaction that has read the table and stays open, like a backup.
async fn reader(schema: &Schema) -> PgConnection {
    let mut reader = schema.connection().await;
    let sql = format!("BEGIN; SELECT FROM \"{}\".meters LIMIT 1", schema.name);
    reader.execute(AssertSqlSafe(sql)).await.unwrap();
    reader
}

#[tokio::test]
async fn a_lazy_store_migrates_at_its_first_connection() {
    let schema = Schema::new();
    // Two first calls at once, and those of another program.
    let [one, other] = [0, 1].map(|_| PostgresStore::lazy(schema.config()).unwrap());
    tokio::join!(claim(&one), claim(&one), claim(&other));
    assert_eq!(schema.rows().await, 1);

    // Whatever the first call is.
    let schema = Schema::new();
    let lazy = PostgresStore::lazy(schema.config()).unwrap();
    assert_eq!(lazy.prune().await.unwrap(), 0);
    claim(&lazy).await;

    // Not if the deployment does it.
    let schema = Schema::new();
    let lazy = PostgresStore::lazy(schema.config().migrate(false)).unwrap();
    let error = try_claim(&lazy).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("migrate()"), "{error}");
    schema.store().await;
    claim(&lazy).await;
}

#[tokio::test]
async fn a_first_call_that_has_no_time_for_the_migration_leaves_it_to_go_on() {
    let schema = Schema::new();
    schema.store().await;
    schema.run(OUTDATED).await;
    // Until its transaction ends, the migration waits.
    let reader = reader(&schema).await;
    let hasty = PostgresStore::lazy(schema.config().timeout(Duration::from_millis(300))).unwrap();
    let since = Instant::now();
    loop {
        let error = try_claim(&hasty).await.unwrap_err();
        assert_eq!(error.applied(), Applied::No, "{error}");
        if error.kind() == ErrorKind::Timeout {
            break;
        }
        // Not even the connection was made in time.
        assert!(error.kind() == ErrorKind::Unreachable && since.elapsed() < PATIENCE, "{error}");
    }
    reader.close().await.unwrap();
    let since = Instant::now();
    while let Err(error) = try_claim(&hasty).await {
        assert!(since.elapsed() < PATIENCE, "{error}");
    }
}

#[tokio::test]
async fn running_it_again_waits_for_no_reader() {
    let schema = Schema::new();
    let store = schema.store().await;
    let reader = reader(&schema).await;
    schema.run("COMMENT ON TABLE {s}.meters IS 'older'").await;
    tokio::time::timeout(Duration::from_secs(20), store.migrate()).await.expect("it waits").unwrap();
    claim(&store).await;
    drop(reader);
}

#[tokio::test]
async fn waiting_for_a_lock_ends_soon() {
    let schema = Schema::new();
    let store = schema.store().await;
    schema.run(OUTDATED).await;
    let reader = reader(&schema).await;
    let outcome = tokio::time::timeout(Duration::from_secs(20), store.migrate()).await.expect("it waits");
    let error = outcome.unwrap_err();
    assert!(error.kind() == ErrorKind::Timeout && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("pg_stat_activity"), "{error}");
    let waiting = "SELECT count(*) FROM pg_locks WHERE relation = '{s}.meters'::regclass AND NOT granted";
    assert_eq!(number(&schema, waiting).await, 0);
    claim(&store).await;
    reader.close().await.unwrap();
    store.migrate().await.unwrap();
    let external = "SELECT count(*) FROM pg_attribute \
                    WHERE attrelid = '{s}.meters'::regclass AND attname = 'state' AND attstorage = 'e'";
    assert_eq!(number(&schema, external).await, 1);
}

#[tokio::test]
async fn an_older_version_leaves_the_functions_of_a_newer_one() {
    const FUNCTIONS: &str = "SELECT count(*) FROM pg_proc WHERE pronamespace = '{s}'::regnamespace";
    let schema = Schema::new();
    let store = schema.store().await;
    let all = number(&schema, FUNCTIONS).await;
    schema
        .run("DROP FUNCTION {s}.prune_v1; COMMENT ON TABLE {s}.meters IS 'ratelimit-postgres 999.0.0 x'")
        .await;
    store.migrate().await.unwrap();
    assert_eq!(number(&schema, FUNCTIONS).await, all - 1);
    // The script says so to those who run it by hand.
    let script = schema.config().migration().unwrap();
    let error = schema.connection().await.execute(AssertSqlSafe(script)).await.unwrap_err();
    assert!(error.to_string().contains("999.0.0"), "{error}");
    assert_eq!(number(&schema, FUNCTIONS).await, all - 1);
    schema.run("COMMENT ON TABLE {s}.meters IS 'ratelimit-postgres 0.0.0 x'").await;
    store.migrate().await.unwrap();
    assert_eq!(number(&schema, FUNCTIONS).await, all);
}

#[tokio::test]
async fn missing_rights_are_named() {
    let schema = Schema::new();
    let role = format!("ratelimit_migration_{}", std::process::id());
    schema.run(&format!("CREATE ROLE {role} LOGIN")).await;
    let server = url().parse::<PgConnectOptions>().unwrap().username(&role);
    let config = schema.config().server(server);
    let denied = PostgresStore::connect_with(config.clone()).await.unwrap_err();
    let lazy = PostgresStore::lazy(config.clone()).unwrap();
    let denied_later = try_claim(&lazy).await.unwrap_err();
    schema.store().await;
    // It may count, and has nothing to migrate.
    schema
        .run(&format!(
            "GRANT USAGE ON SCHEMA {{s}} TO {role}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON {{s}}.meters TO {role}"
        ))
        .await;
    let other = config.logged(ratelimit_postgres::Logged::Logged);
    let counting = PostgresStore::connect_with(other).await;
    if let Ok(store) = &counting {
        claim(store).await;
        // Somebody else has migrated since.
        claim(&lazy).await;
    }
    schema.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    for denied in [denied, denied_later] {
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert!(denied.to_string().contains("`migrate=false`"), "{denied}");
    }
    counting.unwrap();
}
