//! Each kind of connection: log-in, Unix socket, TLS, and the errors if it does not match the server.

mod common;
#[path = "common/ways.rs"]
mod ways;

use std::time::Duration;

use common::{Server, config, limiter};
use ratelimit_core::store::Applied;
use ratelimit_core::{CheckError, ErrorKind, StoreError};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_testbed::Memcached;

/// The maximum duration of a call, even on a busy machine.
const NEVER_A_HANG: Duration = Duration::from_secs(40);

/// The errors of connecting with `connect` and with the first call: the same except for the wording.
async fn failures(config: MemcachedConfig) -> [StoreError; 2] {
    let connecting = tokio::time::timeout(NEVER_A_HANG, MemcachedStore::connect_with(config.clone())).await;
    let at_once = connecting.expect("it hangs").expect_err("it connects");
    let limiter = limiter(&MemcachedStore::lazy(config).unwrap(), "10/h");
    match tokio::time::timeout(NEVER_A_HANG, limiter.check("user:7")).await.expect("it hangs") {
        Err(CheckError::Store(error)) => [at_once, error],
        other => panic!("{other:?}"),
    }
}

/// The errors have this kind, contain all of these texts, and contain no secrets.
fn expect(failures: &[StoreError], kind: ErrorKind, reported: &[&str]) {
    for error in failures {
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{text}");
        assert!(reported.iter().all(|reported| text.contains(reported)), "{text}");
        assert!(!text.contains("secret") && !text.contains("a,b:c") && !text.contains("user:7"), "{text}");
        assert!(error.address().is_some_and(|address| !address.contains('@')), "{text}");
    }
}

/// A store counts, and recovers if the server restarts between two calls while its runtime is not running.
fn counts(way: Memcached, prepare: impl Fn(MemcachedConfig) -> MemcachedConfig) {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (callers, servers) = (runtime(), runtime());
    let server = servers.block_on(Server::start_as(way));
    let store = MemcachedStore::connect_with(prepare(config(server.url())));
    let store = callers.block_on(store).unwrap_or_else(|error| panic!("{error}"));
    for limit in ["3/h", "3/h burst 3", "3/h log"] {
        let limiter = limiter(&store, limit);
        for _ in 0..2 {
            for remaining in [2, 1, 0] {
                assert_eq!(callers.block_on(limiter.check("k")).unwrap().remaining(), remaining, "{limit}");
            }
            assert!(!callers.block_on(limiter.check("k")).unwrap().allowed());
            servers.block_on(server.restart());
        }
    }
}

#[test]
fn stores_count_on_a_server_with_a_log_in() {
    counts(ways::log_in(), |config| config);
}

#[test]
fn stores_count_over_a_unix_socket() {
    let (way, _folder) = ways::socket();
    counts(way, |config| config);
}

#[tokio::test]
async fn a_refused_log_in_is_denied() {
    let server = Server::start_as(ways::log_in()).await;
    let reported = ["refuses the log-in", "`user` and `password`", "nothing was charged"];
    for url in ["alice:secret@", "secret:a,b:c@", "alice@"] {
        let url = format!("memcached://{url}{}", server.address()).replace("a,b:c@", "a%2Cb%3Ac@");
        expect(&failures(config(&url)).await, ErrorKind::Denied, &reported);
    }
    // Too long for the server.
    let long = server.config().user(Some("alice".to_owned())).password(Some("secret".repeat(5_000)));
    for error in failures(long).await {
        assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unreachable), "{error}");
        assert_eq!(error.applied(), Applied::No, "{error}");
    }
    expect(
        &failures(server.config()).await,
        ErrorKind::Denied,
        &["requires a log-in", "`user` and `password`"],
    );
}

#[tokio::test]
async fn unneeded_log_ins_leave_no_item_behind() {
    let server = Server::start(&[]).await;
    let config = server.config().user(Some("alice".to_owned())).password(Some("secret".to_owned()));
    let store = MemcachedStore::connect_with(config).await.unwrap();
    assert!(limiter(&store, "10/h burst 10").check("k").await.unwrap().allowed());
    assert_eq!(server.say("get log-in\r\n", "END"), ["END"]);
    assert_eq!(server.value("log-in"), None);
}

#[tokio::test]
async fn errors_name_a_server_with_only_the_binary_protocol() {
    let server = Server::start_as(Memcached { binary: true, ..Memcached::default() }).await;
    let log_in = server.config().user(Some("alice".to_owned())).password(Some("secret".to_owned()));
    for config in [server.config(), log_in] {
        expect(&failures(config).await, ErrorKind::Unreachable, &["binary protocol", "-S"]);
    }
}

#[tokio::test]
async fn errors_name_a_missing_socket() {
    let (way, folder) = ways::socket();
    expect(
        &failures(config(&format!("memcached+unix://{}/none", folder.path().display()))).await,
        ErrorKind::Unreachable,
        &["No such file", "/none"],
    );
    let server = Server::start_as(way).await;
    server.kill().await;
    expect(&failures(config(server.url())).await, ErrorKind::Unreachable, &["refused", "memcached.sock"]);
}

/// A log-in is part of connecting, which has to end in time.
#[tokio::test]
async fn connecting_times_out_if_the_server_freezes_before_the_log_in() {
    let server = Server::start_as(ways::log_in()).await;
    server.freeze().await;
    let failures = failures(config(server.url()).timeout(Duration::from_millis(300))).await;
    expect(&failures, ErrorKind::Unreachable, &["no connection within the time limit"]);
    assert!(failures.iter().all(|error| error.applied() == Applied::No));
    server.thaw().await;
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    #[test]
    fn stores_count_over_tls() {
        let way = ways::tls();
        counts(way.clone(), |config| ways::with_certificates(config, &way));
        // With its host name as well, and with a log-in.
        let way = Memcached { log_in: ways::log_in().log_in, ..way };
        counts(way.clone(), |config| {
            let named = config.servers.iter().map(|server| server.replace("127.0.0.1", "localhost"));
            let named: Vec<_> = named.collect();
            ways::with_certificates(config, &way).servers(named)
        });
    }

    /// Old servers may leave commands in OpenSSL after values that they have read; see `records.rs`.
    #[tokio::test]
    async fn many_values_in_a_trip_are_all_written() {
        let way = ways::tls();
        let server = Server::start_as(way.clone()).await;
        let config = ways::with_certificates(config(server.url()), &way);
        let limiter = limiter(&MemcachedStore::connect_with(config).await.unwrap(), "10000/h log");
        for (cost, count) in [(60, 300), (1_100, 60), (3_000, 10)] {
            let keys: Vec<String> = (0..count).map(|nth| format!("{cost}:{nth}")).collect();
            for round in 1..=2 {
                let requests = keys.iter().map(|key| ratelimit_core::Request::new(key).cost(cost));
                for answer in limiter.check_many(requests).await {
                    assert_eq!(answer.unwrap().remaining(), 10_000 - round * cost);
                }
            }
        }
    }

    #[tokio::test]
    async fn errors_name_mismatched_certificates() {
        let (way, other) = (ways::tls(), ways::tls());
        let server = Server::start_as(way.clone()).await;
        let good = ways::with_certificates(config(server.url()), &way);
        let foreign = good.clone().authorities(ways::with_certificates(config(""), &other).authorities);
        expect(
            &failures(foreign).await,
            ErrorKind::Unreachable,
            &["TLS", "invalid peer certificate", "`authorities`"],
        );
        let none = good.clone().client_certificate(None).client_key(None);
        expect(
            &failures(none).await,
            ErrorKind::Unreachable,
            &["CertificateRequired", "`client_certificate`"],
        );
        let port = server.address().replace("127.0.0.1", "");
        let misnamed = good.clone().servers([format!("127.0.0.2{port}")]);
        expect(&failures(misnamed).await, ErrorKind::Unreachable, &[]);
        let key = ways::with_certificates(config(""), &other).client_key;
        let error = MemcachedStore::lazy(good.client_key(key)).unwrap_err();
        assert!(error.to_string().contains("does not belong to `client_certificate`"), "{error}");
    }

    #[tokio::test]
    async fn errors_name_tls_on_only_one_side() {
        let way = ways::tls();
        let (encrypted, plain) = (Server::start_as(way.clone()).await, Server::start(&[]).await);
        expect(&failures(encrypted.config()).await, ErrorKind::Unreachable, &["does it require TLS"]);
        let config = ways::with_certificates(plain.config(), &way).tls(true);
        expect(
            &failures(config.timeout(Duration::from_secs(2))).await,
            ErrorKind::Unreachable,
            &["speak TLS"],
        );
    }

    #[tokio::test]
    async fn connecting_times_out_if_the_server_freezes_before_the_handshake() {
        let way = ways::tls();
        let server = Server::start_as(way.clone()).await;
        server.freeze().await;
        let config = ways::with_certificates(config(server.url()), &way).timeout(Duration::from_millis(300));
        expect(&failures(config).await, ErrorKind::Unreachable, &["no connection within the time limit"]);
        server.thaw().await;
    }
}
