//! Every kind of connection: a Unix socket, TLS, PgBouncer in its modes, a pool of the program.

mod common;

use std::time::Duration;

use common::own_server;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, Timestamp};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_testbed::{PgBouncer, Postgres, Server, Settings, Testbed};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
const PATIENCE: Duration = Duration::from_secs(20);

fn config(url: &str) -> PostgresConfig {
    PostgresConfig::from_url(url).unwrap().timeout(PATIENCE).prune_every(None)
}

async fn pgbouncer(server: &Server, settings: &[&str]) -> Server {
    let settings = settings.iter().map(|line| (*line).to_owned()).collect();
    let testbed = Testbed::new(Settings { addresses: Default::default(), ..Settings::from_env() });
    testbed.pgbouncer(server, PgBouncer { settings }).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn claim(store: &PostgresStore, limit: &Limit, key: &[u8]) -> Result<bool, StoreError> {
    let id = MeterId { namespace: "", scope: limit.scope(), key };
    let claims = [Claim { id, cost: 1, meter: limit.meter_for(key) }];
    Ok(store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await?.admitted)
}

/// Each kind of call, with keys of all bytes: of a limit of three exactly three are admitted.
async fn check(store: &PostgresStore) {
    store.migrate().await.unwrap();
    store.migrate().await.unwrap(); // does nothing the second time
    let key: Vec<u8> = (0..=255).cycle().take(150).collect();
    for text in ["3/10s", "3/10s fixed", "3/10s gcra", "3/10s log", "3/10s precision 1s"] {
        let limit: Limit = text.parse().unwrap();
        for round in 0..5 {
            assert_eq!(claim(store, &limit, &key).await.unwrap(), round < 3, "{text}, round {round}");
        }
    }
    // Several at once, first when none exists, and then when all do.
    let limit: Limit = "2/10s name together".parse().unwrap();
    let keys: Vec<Vec<u8>> = (0_u8..20).map(|key| vec![b'\'', b'\\', 0, key]).collect();
    let asks: Vec<_> = keys
        .iter()
        .map(|key| {
            let id = MeterId { namespace: "", scope: limit.scope(), key };
            [Claim { id, cost: 1, meter: limit.meter_for(key) }]
        })
        .collect();
    let slices: Vec<_> = asks.iter().map(|claims| Claims::new(NOW, Mode::Charge, claims).unwrap()).collect();
    for round in 0..4 {
        for answer in store.claim_many(&slices).await {
            assert_eq!(answer.unwrap().admitted, round < 2, "round {round}");
        }
    }
    let mut names = 0;
    store.scan_meters("", 100, |_| names += 1).await.unwrap();
    assert_eq!(names, 25);
    store.reset(slices[0]).await.unwrap();
    assert!(store.claim(slices[0]).await.unwrap().admitted);
    store.prune().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_connect_over_a_unix_socket() {
    let server = own_server(Postgres { socket: true, ..Postgres::default() }).await;
    let folder = std::env::temp_dir().display().to_string();
    check(&PostgresStore::connect_with(config(server.url())).await.unwrap()).await;
    // The same directory as the host, and a port on which nothing listens.
    let host = folder.replace('/', "%2F");
    let port = server.address().port();
    let url = format!("postgres://postgres@{host}:{port}/postgres");
    check(&PostgresStore::connect_with(config(&url).schema("other")).await.unwrap()).await;
    let nobody = format!("postgres://app:pa55word@localhost:{}/app?host={folder}", port + 1);
    let error = PostgresStore::connect(&nobody).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No), "{text}");
    assert!(text.contains(&folder) && !text.contains("pa55word"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_connect_over_ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return; // this machine has no IPv6
    }
    let arguments = ["-c", "listen_addresses=127.0.0.1,::1"].map(str::to_owned).to_vec();
    let server = own_server(Postgres { arguments, ..Postgres::default() }).await;
    let url = format!("postgres://postgres@[::1]:{}/postgres", server.address().port());
    check(&PostgresStore::connect_with(config(&url)).await.unwrap()).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_requires_certificates_of_both_sides() {
    use std::sync::Arc;

    use ratelimit_testbed::Certificates;

    let certificates = Arc::new(Certificates::new().unwrap());
    let settings = Postgres { certificates: Some(certificates.clone()), ..Postgres::default() };
    let server = own_server(settings).await;
    check(&PostgresStore::connect_with(config(server.url())).await.unwrap()).await;
    let plain = format!("postgres://postgres@{}/postgres", server.address());
    let refused = |url: String| async move {
        let error = PostgresStore::connect_with(config(&url)).await.unwrap_err();
        assert_eq!(error.applied(), Applied::No, "{error}");
        (error.kind(), error.to_string())
    };
    let authority = certificates.authority().display().to_string();
    // Without encryption, and without a client certificate.
    let (kind, text) = refused(format!("{plain}?sslmode=disable")).await;
    assert_eq!(kind, ErrorKind::Denied, "{text}");
    let (kind, text) = refused(format!("{plain}?sslmode=verify-full&sslrootcert={authority}")).await;
    assert_eq!(kind, ErrorKind::Denied, "{text}");
    // A file that does not exist, and an authority that has not signed the server's certificate.
    let others = Certificates::new().unwrap();
    let other = others.authority().display().to_string();
    let (kind, text) = refused(server.url().replace("authority.pem", "none.pem")).await;
    assert!(kind == ErrorKind::Unreachable && text.contains("certificate"), "{text}");
    let (kind, text) = refused(format!("{plain}?sslmode=verify-full&sslrootcert={other}")).await;
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    assert!(text.contains("certificate"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_work_behind_pgbouncer_in_every_mode() {
    let server = own_server(Postgres::default()).await;
    let forgiving = "ignore_startup_parameters = options, extra_float_digits";
    for (number, settings) in [
        &[][..],
        &[forgiving],
        &["pool_mode = session"],
        &["pool_mode = session", forgiving],
        &["pool_mode = statement"],
    ]
    .into_iter()
    .enumerate()
    {
        let bouncer = pgbouncer(&server, settings).await;
        let config = config(bouncer.url()).schema(format!("mode {number}"));
        let store = PostgresStore::connect_with(config.clone()).await.unwrap();
        check(&store).await;
        // Concurrently, so that all tasks share each connection.
        let limit: Limit = "40/10s name crowd".parse().unwrap();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (store, limit) = (store.clone(), limit.clone());
                tokio::spawn(async move { claim(&store, &limit, b"key").await.unwrap() })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += u32::from(task.await.unwrap());
        }
        assert_eq!(admitted, 40, "{settings:?}");
        // The same if configured in advance.
        let reported = PostgresStore::connect_with(config.pooler(true)).await.unwrap();
        assert!(!claim(&reported, &limit, b"key").await.unwrap());
    }
}

/// A pool in front of PgBouncer, and one whose connections use other settings for reading and writing text.
#[tokio::test(flavor = "multi_thread")]
async fn stores_work_on_a_pool_of_the_program() {
    let server = own_server(Postgres::default()).await;
    let bouncer = pgbouncer(&server, &[]).await;
    let direct: PgConnectOptions = server.url().parse().unwrap();
    let strange = [("standard_conforming_strings", "off"), ("bytea_output", "escape")];
    let through = bouncer.url().parse::<PgConnectOptions>().unwrap().extra_float_digits(None);
    for (number, options) in [direct.options(strange), through].into_iter().enumerate() {
        let pool = PgPoolOptions::new().max_connections(4).test_before_acquire(false);
        let pool = pool.connect_with(options).await.unwrap();
        let config = PostgresConfig::default().timeout(PATIENCE).prune_every(None);
        check(&PostgresStore::with_pool(pool, config.schema(format!("pool {number}"))).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_setting_for_parameters_pgbouncer_refuses() {
    let server = own_server(Postgres::default()).await;
    let bouncer = pgbouncer(&server, &[]).await;
    let url = format!("{}?options=-c%20work_mem%3D8MB", bouncer.url());
    let error = PostgresStore::connect_with(config(&url)).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unsupported, Applied::No), "{error}");
    assert!(error.to_string().contains("ignore_startup_parameters"), "{error}");
}

/// PostgreSQL stops during a call behind PgBouncer: the call may have been charged. Then the server returns.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_behind_pgbouncer_is_used_again() {
    let server = own_server(Postgres::default()).await;
    let bouncer = pgbouncer(&server, &["server_login_retry = 1"]).await;
    let store = PostgresStore::connect_with(config(bouncer.url())).await.unwrap();
    store.migrate().await.unwrap();
    let limit: Limit = "3/10s".parse().unwrap();
    assert!(claim(&store, &limit, b"key").await.unwrap());
    // The call waits for the row while the server stops.
    let mut holder = PgConnection::connect(server.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM ratelimit.meters FOR UPDATE").execute(&mut holder).await.unwrap();
    let mut watcher = PgConnection::connect(server.url()).await.unwrap();
    let waiting = {
        let (store, limit) = (store.clone(), limit.clone());
        tokio::spawn(async move { claim(&store, &limit, b"key").await })
    };
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut watcher).await.unwrap() == 0 {}
    server.kill().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::Unknown), "{error}");
    assert!(error.is_retryable(), "{error}");
    server.start().await.unwrap();
    let mut outcome = claim(&store, &limit, b"key").await;
    for _ in 0..100 {
        match &outcome {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        outcome = claim(&store, &limit, b"key").await;
    }
    outcome.unwrap();
}
