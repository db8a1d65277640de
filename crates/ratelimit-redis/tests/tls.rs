//! TLS, with the test's own authority: one server, a cluster, sentinels, and client certificates.
#![cfg(feature = "tls")]

mod common;

use std::path::PathBuf;
use std::time::Duration;

use ratelimit_core::store::Decisions;
use ratelimit_core::{CounterStore, ErrorKind, Limit, RateLimiter};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::{Certificates, Redis, Tls};

/// A configuration that trusts the authority of these certificates.
fn trusting(url: &str, tls: &Tls) -> RedisConfig {
    let mut config = RedisConfig::from_url(url).unwrap();
    config.timeout = Duration::from_secs(10);
    config.authorities = Some(std::fs::read(tls.certificates.authority()).unwrap());
    config
}

fn redis(tls: &Tls) -> Redis {
    Redis { tls: Some(tls.clone()), ..Redis::default() }
}

/// Sets the client's certificate and its key.
fn with_client(config: RedisConfig, [certificate, key]: [PathBuf; 2]) -> RedisConfig {
    let read = |path: PathBuf| Some(std::fs::read(path).unwrap());
    config.client_certificate(read(certificate)).client_key(read(key))
}

fn client(certificates: &Certificates) -> [PathBuf; 2] {
    [certificates.client(), certificates.client_key()]
}

async fn decides(store: &RedisStore) {
    let limiter = RateLimiter::new(store, "2/h".parse::<Limit>().unwrap());
    for key in 0..20 {
        assert!(limiter.check(format!("k{key}").as_str()).await.unwrap().allowed());
    }
}

#[tokio::test]
async fn tls_trusts_only_the_configured_authorities() {
    let tls = Tls::new(Certificates::new().unwrap());
    let server = common::testbed().redis_with(redis(&tls)).await.unwrap();
    for url in [server.url().to_owned(), server.url().replace("127.0.0.1", "localhost")] {
        let config = trusting(&url, &tls);
        let store = RedisStore::connect_with(config.clone()).await.unwrap();
        decides(&store).await;
        server.kill().await.unwrap();
        server.start().await.unwrap();
        decides(&store).await;
        assert_eq!(store.promises().decisions, Decisions::Exact);

        // The machine does not trust that authority, and the server does not accept a plain connection.
        let mut strangers = config.clone();
        strangers.authorities = None;
        let error = RedisStore::connect_with(strangers).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("`authorities`"), "{error}");
        let plain = RedisConfig::from_url(&url.replace("rediss", "redis")).unwrap();
        assert_eq!(RedisStore::connect_with(plain).await.unwrap_err().kind(), ErrorKind::Unreachable);
        let mut rubbish = config;
        rubbish.authorities = Some(b"rubbish".to_vec());
        assert_eq!(RedisStore::connect_with(rubbish).await.unwrap_err().kind(), ErrorKind::Misconfigured);
    }
}

#[tokio::test]
async fn a_server_that_is_down_asks_for_no_certificate() {
    let tls = Tls::new(Certificates::new().unwrap());
    let url = format!("rediss://127.0.0.1:{}/", common::free_port());
    let error = RedisStore::connect_with(trusting(&url, &tls)).await.unwrap_err();
    let reported = error.to_string();
    assert!(reported.contains("is the server running?") && !reported.contains("certificate"), "{reported}");
}

#[tokio::test]
async fn client_certificates_are_sent_and_required() {
    let tls = Tls { asks_clients: true, ..Tls::new(Certificates::new().unwrap()) };
    let server = common::testbed().redis_with(redis(&tls)).await.unwrap();
    let config = with_client(trusting(server.url(), &tls), client(&tls.certificates));
    assert!(!format!("{config:?}").contains("45, 45, 45"), "{config:?}");
    let store = RedisStore::connect_with(config.clone()).await.unwrap();
    decides(&store).await;
    server.kill().await.unwrap();
    server.start().await.unwrap();
    decides(&store).await;

    let fails = async |config: RedisConfig, kinds: &[ErrorKind]| {
        let error = RedisStore::connect_with(config).await.unwrap_err();
        assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
        assert!(error.to_string().contains("`client_certificate`"), "{error}");
    };
    // Which kind it is depends on whether the alert arrives before the connection is closed.
    let refused = [ErrorKind::Denied, ErrorKind::Unreachable];
    let none = || config.clone().client_certificate(None).client_key(None);
    for _ in 0..20 {
        fails(none(), &refused).await;
    }
    let strangers = Certificates::new().unwrap();
    fails(with_client(none(), client(&strangers)), &refused).await;
    // That certificate is for servers.
    let of_server = [tls.certificates.server(), tls.certificates.server_key()];
    fails(with_client(none(), of_server), &refused).await;

    let misconfigured = [ErrorKind::Misconfigured];
    fails(config.clone().client_certificate(Some(b"rubbish".to_vec())), &misconfigured).await;
    fails(config.clone().client_certificate(None), &misconfigured).await;
    fails(config.clone().client_key(None), &misconfigured).await;
    let mixed = [tls.certificates.client(), tls.certificates.server_key()];
    fails(with_client(none(), mixed), &misconfigured).await;
    let error = RedisStore::connect_with(config.client_key(Some(b"rubbish".to_vec()))).await.unwrap_err();
    assert!(error.to_string().contains("`client_key` holds no private key"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_speaks_tls() {
    let tls = Tls { asks_clients: true, ..Tls::new(Certificates::new().unwrap()) };
    let cluster = common::testbed().redis_cluster_with(redis(&tls)).await.unwrap();
    let config = with_client(trusting(&cluster.url(), &tls), client(&tls.certificates));
    let store = RedisStore::connect_with(config).await.unwrap();
    decides(&store).await;
    cluster.kill().await.unwrap();
    cluster.start().await.unwrap();
    decides(&store).await;
}

/// Nodes are reported by their addresses, and their certificates contain only a name.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_nodes_are_verified_by_their_announced_name() {
    let tls = Tls::new(Certificates::of(&["localhost"]).unwrap());
    let named = Tls { hostname: Some("localhost".to_owned()), ..tls.clone() };
    let cluster = common::testbed().redis_cluster_with(redis(&named)).await.unwrap();
    let store = trusting(&cluster.url().replace("127.0.0.1", "localhost"), &tls);
    let store = RedisStore::connect_with(store).await.unwrap();
    decides(&store).await;
    cluster.kill().await.unwrap();
    cluster.start().await.unwrap();
    decides(&store).await;

    // Without an announced name, the certificate does not match the address.
    let error = RedisStore::connect_with(trusting(&cluster.url(), &tls)).await.unwrap_err();
    assert!(error.to_string().contains("localhost"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_servers_speak_tls() {
    let tls = Tls { asks_clients: true, ..Tls::new(Certificates::new().unwrap()) };
    let sentinel =
        common::testbed().redis_sentinel_with(redis(&tls), Duration::from_secs(120)).await.unwrap();
    let config = with_client(trusting(&sentinel.url(), &tls), client(&tls.certificates));
    assert!(sentinel.url().starts_with("rediss+sentinel://"));
    let store = RedisStore::connect_with(config.clone()).await.unwrap();
    decides(&store).await;
    sentinel.fail_over().await.unwrap();
    decides(&RedisStore::connect_with(config.clone()).await.unwrap()).await;
    let error = RedisStore::connect_with(config.client_certificate(None).client_key(None)).await.unwrap_err();
    assert!(error.to_string().contains("`client_certificate`"), "{error}");
}
