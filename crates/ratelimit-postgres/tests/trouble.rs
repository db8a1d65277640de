//! What callers get when something is wrong, and that the store recovers afterwards.

mod common;

use std::time::Duration;

use common::relay::Relay;
use common::{Schema, url};
use ratelimit_core::meter::{Meter, Window};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, Timestamp};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn limit() -> Limit {
    "3/10s".parse().unwrap()
}

fn claim_of(limit: &Limit) -> Claim<'_> {
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"secret-key" };
    Claim { id, cost: 1, meter: limit.meter_for(b"secret-key") }
}

async fn claim(store: &PostgresStore) -> Result<Answer, StoreError> {
    let limit = limit();
    store.claim(Claims::new(NOW, Mode::Charge, &[claim_of(&limit)]).unwrap()).await
}

async fn reset(store: &PostgresStore, claims: &[Claim<'_>]) {
    store.reset(Claims::new(NOW, Mode::Charge, claims).unwrap()).await.unwrap();
}

/// The error says what and where, and contains no secrets.
fn check(error: &StoreError, kind: ErrorKind, applied: Applied, says: &str) {
    let text = format!("{error} {error:?}");
    assert_eq!((error.kind(), error.applied()), (kind, applied), "{text}");
    assert!(text.contains(says), "{text}");
    assert!(error.address().is_some(), "{text}");
    assert!(!text.contains("pa55word") && !text.contains("secret-key"), "{text}");
}

fn options() -> PgConnectOptions {
    url().parse::<PgConnectOptions>().unwrap().password("pa55word")
}

/// A store with a short time limit: on a slow machine it takes several attempts to connect.
async fn connected(config: PostgresConfig) -> PostgresStore {
    for _ in 0..100 {
        match PostgresStore::connect_with(config.clone()).await {
            Ok(store) => return store,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    panic!("no connection in a hundred attempts")
}

#[tokio::test]
async fn unreachable_and_invalid_addresses_are_errors() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = PostgresStore::connect(&format!("postgres://app:pa55word@{closed}/db")).await.unwrap_err();
    check(&error, ErrorKind::Unreachable, Applied::No, "is the server running?");
    let error = PostgresStore::connect("postgres://app:pa55word@host:port/db").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(!format!("{error:?}").contains("pa55word"));
}

#[tokio::test]
async fn failed_log_ins_and_missing_databases_are_reported() {
    let server = options().username("nobody_of_that_name");
    let config = Schema::new().config().server(server);
    let error = PostgresStore::connect_with(config).await.unwrap_err();
    check(&error, ErrorKind::Denied, Applied::No, "log-in");
    let server = options().database("no_database_of_that_name");
    let config = Schema::new().config().server(server);
    let error = PostgresStore::connect_with(config).await.unwrap_err();
    check(&error, ErrorKind::Unsupported, Applied::No, "create it");
}

#[tokio::test]
async fn missing_and_outdated_tables_are_reported() {
    let schema = Schema::new();
    let store = PostgresStore::connect_with(schema.config().migrate(false)).await.unwrap();
    check(&claim(&store).await.unwrap_err(), ErrorKind::Unsupported, Applied::No, "migrate()");
    store.migrate().await.unwrap();
    assert!(claim(&store).await.unwrap().admitted);
    schema
        .run("ALTER FUNCTION {s}.take_one_v1 RENAME TO take_one_v0; COMMENT ON TABLE {s}.meters IS 'older'")
        .await;
    check(&claim(&store).await.unwrap_err(), ErrorKind::Unsupported, Applied::No, "migrate()");
    store.migrate().await.unwrap();
    assert!(claim(&store).await.unwrap().admitted);
    schema.run("DROP TABLE {s}.meters CASCADE").await;
    check(&claim(&store).await.unwrap_err(), ErrorKind::Unsupported, Applied::No, "migrate()");
    store.migrate().await.unwrap();
    assert!(claim(&store).await.unwrap().admitted);
}

#[tokio::test]
async fn a_read_only_server_is_reported() {
    let schema = Schema::new();
    schema.store().await;
    let server = options().options([("default_transaction_read_only", "on")]);
    let store = PostgresStore::connect_with(schema.config().server(server)).await.unwrap();
    let error = claim(&store).await.unwrap_err();
    check(&error, ErrorKind::ReadOnly, Applied::No, "primary");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn missing_rights_and_too_many_connections_are_reported() {
    let schema = Schema::new();
    schema.store().await;
    let role = format!("ratelimit_test_{}", std::process::id());
    schema.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pa55word' CONNECTION LIMIT 1")).await;
    let server = options().username(&role);
    let config = schema.config().server(server).migrate(false);
    let store = PostgresStore::connect_with(config.clone()).await.unwrap();
    let denied = claim(&store).await.unwrap_err();
    let full = PostgresStore::connect_with(config).await.unwrap_err();
    drop(store);
    schema.run(&format!("DROP ROLE {role}")).await;
    check(&denied, ErrorKind::Denied, Applied::No, "USAGE");
    check(&full, ErrorKind::Unreachable, Applied::No, "too many connections");
    assert!(full.is_retryable());
}

#[tokio::test]
async fn invalid_states_are_corrupt_and_fail_no_other_slice() {
    let schema = Schema::new();
    let store = schema.store().await;
    let other: Limit = "3/10s name other".parse().unwrap();
    let limits = [limit(), "3/10s gcra".parse().unwrap()];
    for wrong in [
        "state = '{}'",
        "state = '{1}'",
        "state = '{-1,2,3}'",
        "state = '{1,NULL,2}'",
        "state = '{9223372036854775807,9223372036854775807,9223372036854775807}'",
        "state = '{-9223372036854775808,9223372036854775807,1}'",
        "kind = 7",
    ] {
        for limit in &limits {
            let [corrupt, sound] = [[claim_of(limit)], [claim_of(&other)]];
            reset(&store, &[corrupt[0], sound[0]]).await;
            let slices = [&corrupt, &sound].map(|claims| Claims::new(NOW, Mode::Charge, claims).unwrap());
            assert!(store.claim(slices[0]).await.unwrap().admitted);
            schema.run(&format!("UPDATE {{s}}.meters SET {wrong}")).await;
            let mut answers = store.claim_many(&slices).await;
            assert!(answers.pop().unwrap().unwrap().admitted, "{wrong}");
            check(&answers.pop().unwrap().unwrap_err(), ErrorKind::Corrupt, Applied::No, "another program");
        }
    }
    let limit = limit();
    reset(&store, &[claim_of(&limit)]).await;
    assert!(claim(&store).await.unwrap().admitted);
}

/// Invalid debts, where a bucket of another rate would charge them, and where one of the same rate would.
#[tokio::test]
async fn invalid_buckets_are_corrupt() {
    let schema = Schema::new();
    let store = schema.store().await;
    let (longest, max) = (ratelimit_core::meter::MAX_PERIOD_NANOS, i64::MAX);
    let many = |debts: u64| (1..=debts).fold("1".to_string(), |state, debt| format!("{state},0,{debt},0"));
    let limits: [Limit; 2] = ["3/3s gcra".parse().unwrap(), "3/10s gcra".parse().unwrap()];
    let sound = ["1,2,9", "1,2,1000000000", "1,2,9,3", "1,2,9,2,3,10,3"].map(str::to_string);
    let sound = sound.into_iter().chain([format!("1,2,{longest}"), format!("1,{max},1000000000"), many(16)]);
    let corrupt = ["1,2", "1,2,0", "1,2,9,-3", "1,2,9,NULL", "1,2,NULL,2", "1,2,9,2,3", "1,2,9,2,3,10"];
    let corrupt = corrupt.into_iter().chain(["4611686018427387904,2,9", "1,2,9,2,3,9,3", "1,2,9,2,3,8,3"]);
    let corrupt = corrupt.map(str::to_string).chain([format!("1,2,{}", longest + 1), many(17)]);
    let states: Vec<_> =
        sound.map(|state| (state, true)).chain(corrupt.map(|state| (state, false))).collect();
    for ((state, sound), limit) in states.iter().flat_map(|state| [(state, &limits[0]), (state, &limits[1])])
    {
        let claim = [claim_of(limit)];
        for mode in [Mode::Peek, Mode::Charge, Mode::Force] {
            reset(&store, &claim).await;
            assert!(store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await.unwrap().admitted);
            schema.run(&format!("UPDATE {{s}}.meters SET state = ARRAY[{state}]")).await;
            match store.claim(Claims::new(NOW, mode, &claim).unwrap()).await {
                Err(error) if !sound => check(&error, ErrorKind::Corrupt, Applied::No, "another program"),
                answer => assert!(*sound && answer.is_ok(), "{state}: {answer:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_on_a_locked_row_fail_in_time() {
    let schema = Schema::new();
    schema.store().await;
    let store = connected(schema.config().timeout(Duration::from_millis(300))).await;
    while claim(&store).await.is_err() {} // on a slow machine
    let mut holder = schema.connection().await;
    let sql = format!("BEGIN; SELECT FROM \"{}\".meters FOR UPDATE", schema.name);
    sqlx::Executor::execute(&mut holder, sqlx::AssertSqlSafe(sql)).await.unwrap();
    let error = tokio::time::timeout(Duration::from_secs(30), claim(&store)).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout), "{error}");
    drop(holder);
    while claim(&store).await.is_err() {}
}

/// Of two meters in one call, one is charged immediately; the other has to be read first, and its row is locked.
#[tokio::test(flavor = "multi_thread")]
async fn charges_are_reported_when_the_rest_of_the_batch_fails() {
    let schema = Schema::new();
    schema.store().await;
    let store = connected(schema.config().timeout(Duration::from_millis(400))).await;
    let segment = 1_000_000_000;
    let meter = Meter::Window(Window::new(100, segment, 1, false, 0).unwrap());
    let claim =
        |key: &'static [u8]| [Claim { id: MeterId { namespace: "n", scope: "s", key }, cost: 1, meter }];
    let [free, held] = [claim(b"free"), claim(b"held")];
    let at = |segments: u64| Timestamp::from_nanos(1_700_000_000_000_000_000 + segments * segment);
    for (when, claim) in [(0, &held), (1, &free)] {
        let claims = Claims::new(at(when), Mode::Charge, claim).unwrap();
        while store.claim(claims).await.is_err() {} // on a slow machine
    }
    let peek = Claims::new(at(1), Mode::Peek, &free).unwrap();
    let before = store.claim(peek).await.unwrap().verdicts[0].remaining;
    let mut holder = schema.connection().await;
    let sql = format!(
        "BEGIN; SELECT FROM \"{}\".meters WHERE state[1] < {} FOR UPDATE",
        schema.name,
        at(1).as_nanos()
    );
    sqlx::Executor::execute(&mut holder, sqlx::AssertSqlSafe(sql)).await.unwrap();
    let both = [&free, &held].map(|claim| Claims::new(at(1), Mode::Charge, claim).unwrap());
    let mut answers = store.claim_many(&both).await;
    let error = answers.pop().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout), "{error}");
    assert_eq!(error.applied(), Applied::No, "{error}");
    assert!(answers.pop().unwrap().unwrap().charged);
    assert_eq!(store.claim(peek).await.unwrap().verdicts[0].remaining, before - 1);
    drop(holder);
}

/// A shared statement that could not lock a row has charged nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_on_locked_rows_is_not_charged() {
    let schema = Schema::new();
    let store = schema.store().await;
    let limits: [Limit; 2] = ["9/10s".parse().unwrap(), "9/10s name other".parse().unwrap()];
    let claims = limits.each_ref().map(|limit| [claim_of(limit)]);
    let slices = claims.each_ref().map(|claims| Claims::new(NOW, Mode::Charge, claims).unwrap());
    store.claim_many(&slices).await.into_iter().for_each(|answer| assert!(answer.unwrap().admitted));
    let mut holder = schema.connection().await;
    let sql = format!("BEGIN; SELECT FROM \"{}\".meters FOR UPDATE", schema.name);
    sqlx::Executor::execute(&mut holder, sqlx::AssertSqlSafe(sql)).await.unwrap();
    let config = schema.config().timeout(Duration::from_secs(2));
    let hurried = connected(config).await;
    for answer in hurried.claim_many(&slices).await {
        check(&answer.unwrap_err(), ErrorKind::Timeout, Applied::No, "locked");
    }
    drop(holder);
}

#[tokio::test]
async fn closed_connections_are_replaced() {
    let schema = Schema::new();
    let server = options().application_name(&schema.name);
    let config = schema.config().server(server);
    let store = PostgresStore::connect_with(config).await.unwrap();
    store.migrate().await.unwrap();
    assert!(claim(&store).await.unwrap().admitted);
    let name = &schema.name;
    schema
        .run(&format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{name}'"
        ))
        .await;
    if let Err(error) = claim(&store).await {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.is_retryable());
    }
    claim(&store).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_silent_server_time_out() {
    let schema = Schema::new();
    schema.store().await;
    let server = options();
    let relay = Relay::to(&format!("{}:{}", server.get_host(), server.get_port())).await;
    let config = schema
        .config()
        .server(server.host("127.0.0.1").port(relay.port()))
        .timeout(Duration::from_millis(500))
        .connections(2);
    let store = connected(config).await;
    while claim(&store).await.is_err() {} // on a slow machine
    relay.silence(usize::MAX);
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { claim(&store).await })
        })
        .collect();
    let mut applied = Vec::new();
    for task in tasks {
        let error = tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap().unwrap_err();
        // A caller that got no connection learns that there is none.
        let unsent = error.kind() == ErrorKind::Unreachable && error.applied() == Applied::No;
        assert!(error.kind() == ErrorKind::Timeout || unsent, "{error}");
        applied.push(error.applied());
    }
    assert!(applied.contains(&Applied::Unknown));
    relay.silence(0);
    while claim(&store).await.is_err() {}
}

/// Nothing is wrong with the connections if a call was late only because it had waited for one.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_for_a_connection_closes_no_other() {
    let schema = Schema::new();
    let timeout = Duration::from_secs(4);
    let (store, relay) = relayed(&schema, timeout, 2).await;
    let opened = relay.opened();
    let held = |rows| format!("BEGIN; SELECT FROM \"{}\".meters FOR UPDATE {rows}", schema.name);
    let limits: [Limit; 2] = ["9/10s".parse().unwrap(), "9/10s name other".parse().unwrap()];
    let mut holders = Vec::new();
    for limit in &limits {
        let claim = [claim_of(limit)];
        store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await.unwrap();
        let mut holder = schema.connection().await;
        sqlx::Executor::execute(&mut holder, sqlx::AssertSqlSafe(held("SKIP LOCKED"))).await.unwrap();
        holders.push(holder);
    }
    let reset = |limit: &Limit| {
        let (store, limit) = (store.clone(), limit.clone());
        tokio::spawn(async move {
            store.reset(Claims::new(NOW, Mode::Charge, &[claim_of(&limit)]).unwrap()).await
        })
    };
    let [first, second] = [reset(&limits[0]), reset(&limits[0])];
    tokio::time::sleep(timeout / 20).await;
    let late = reset(&limits[1]);
    // More than half of its time, and less than after which a call gives up waiting for a lock.
    tokio::time::sleep(timeout * 9 / 16).await;
    drop(holders.remove(0));
    for reset in [first, second] {
        reset.await.unwrap().unwrap();
    }
    late.await.unwrap().unwrap_err();
    claim(&store).await.unwrap();
    assert_eq!(relay.opened(), opened, "the other connection was closed");
}

/// A store through a relay, with this many idle connections.
async fn relayed(schema: &Schema, timeout: Duration, connections: usize) -> (PostgresStore, Relay) {
    schema.store().await;
    let server = options();
    let relay = Relay::to(&format!("{}:{}", server.get_host(), server.get_port())).await;
    let server = server.host("127.0.0.1").port(relay.port());
    let config = schema.config().server(server).timeout(timeout).connections(connections).migrate(false);
    let store = connected(config).await;
    while relay.opened() < connections {
        let _ = tokio::join!(claim(&store), claim(&store), claim(&store));
    }
    (store, relay)
}

/// Something between the store and the server has dropped the idle connections without a word.
#[tokio::test]
async fn connections_that_were_idle_for_long_are_not_used() {
    let schema = Schema::new();
    let (store, relay) = relayed(&schema, Duration::from_secs(20), 3).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    relay.silence(relay.opened());
    let (one, two, three) = tokio::join!(claim(&store), claim(&store), claim(&store));
    for answer in [one, two, three] {
        answer.unwrap();
    }
}

#[tokio::test]
async fn a_time_out_closes_the_idle_connections() {
    let schema = Schema::new();
    let (store, relay) = relayed(&schema, Duration::from_millis(500), 3).await;
    let opened = relay.opened();
    relay.silence(opened);
    claim(&store).await.unwrap_err();
    let _ = claim(&store).await; // on a slow machine
    assert!(relay.opened() > opened, "another connection from before was used");
}

/// A server that ends each connection with an error, as it does at a `transaction_timeout`.
#[tokio::test]
async fn a_connection_that_an_error_has_ended_is_not_kept() {
    const FATAL: &[u8] = b"E\0\0\0\x23SFATAL\0VFATAL\0CXX000\0Mthe end\0\0";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://app@{}/app", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            assert!(client.read(&mut bytes).await.unwrap() > 0);
            client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await.unwrap(); // logged in, ready
            assert!(client.read(&mut bytes).await.unwrap() > 0);
            client.write_all(FATAL).await.unwrap();
        }
    });
    let config =
        PostgresConfig::from_url(&format!("{url}?sslmode=disable&pooler=true&prune_every=0s&migrate=false"));
    let store = PostgresStore::lazy(config.unwrap()).unwrap();
    for _ in 0..2 {
        check(&claim(&store).await.unwrap_err(), ErrorKind::Server, Applied::No, "XX000");
    }
}
