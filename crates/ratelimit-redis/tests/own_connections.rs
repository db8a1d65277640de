//! Stores on connections and pools that the program already has: what happens when the server is down, frozen or has lost
//! its scripts, when the pool is empty, and which calls a cluster client repeats.

mod common;

use std::time::Duration;

use common::Server;
use common::ways::{Way, connection, manager};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, Decisions, MeterId, Mode, Refund};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};
use redis::cluster::ClusterClientBuilder;
use redis::{AsyncConnectionConfig, Client};
use tokio::time::timeout;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(limit: Duration) -> RedisConfig {
    RedisConfig::default().timeout(limit)
}

fn limit() -> Limit {
    "100/h log".parse().unwrap()
}

async fn send_claim(store: &RedisStore, mode: Mode, keys: &[&str]) -> Result<Answer, StoreError> {
    let limit = limit();
    let claims: Vec<_> = keys
        .iter()
        .map(|key| Claim {
            id: MeterId { namespace: "n", scope: limit.scope(), key: key.as_bytes() },
            cost: 1,
            meter: limit.meter_for(key.as_bytes()),
        })
        .collect();
    let asked = store.claim(Claims::new(NOW, mode, &claims).unwrap());
    timeout(PATIENCE, asked).await.expect("a call hangs")
}

async fn charge(store: &RedisStore) -> Result<Answer, StoreError> {
    send_claim(store, Mode::Charge, &["k"]).await
}

/// How many units are taken, once the store answers.
async fn used(store: &RedisStore, key: &str) -> u64 {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match send_claim(store, Mode::Peek, &[key]).await {
            Ok(answer) => return 100 - answer.verdicts[0].remaining,
            Err(error) => assert!(tokio::time::Instant::now() < until, "it does not recover: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn check(error: &StoreError, kind: ErrorKind, applied: Applied) {
    assert_eq!((error.kind(), error.applied()), (kind, applied), "{error}");
    assert!(error.address().is_some_and(|address| address.starts_with("the given ")), "{error}");
}

#[tokio::test]
async fn a_manager_reconnects_and_a_bare_connection_does_not() {
    let server = Server::start(&[]).await;
    let managed =
        RedisStore::with_connection(manager(&server.url()).await.unwrap(), config(Duration::from_secs(5)))
            .unwrap();
    let bare = RedisStore::with_connection(
        connection(Client::open(server.url()).unwrap()).await.unwrap(),
        config(Duration::from_secs(5)),
    )
    .unwrap();
    for store in [&managed, &bare] {
        assert!(charge(store).await.unwrap().admitted);
    }
    server.kill().await;
    for store in [&managed, &bare] {
        let error = charge(store).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{error}");
        // The store cannot see what was written.
        assert_eq!(error.applied(), Applied::Unknown, "{error}");
    }
    server.restart().await;
    // The server is empty and has lost the scripts.
    assert_eq!(used(&managed, "k").await, 0);
    assert!(charge(&managed).await.unwrap().admitted);
    assert_eq!(used(&managed, "k").await, 1);
    check(&charge(&bare).await.unwrap_err(), ErrorKind::Unreachable, Applied::Unknown);
}

#[tokio::test]
async fn the_deadline_is_kept_when_the_server_is_frozen() {
    let server = Server::start(&[]).await;
    for way in [Way::Connection, Way::Manager] {
        let settings =
            RedisConfig::from_url(&server.url()).unwrap().timeout(Duration::from_millis(300)).prefix("w:");
        let store = way.open(&settings, &[server.url()]).await.unwrap();
        used(&store, "k").await;
        server.freeze().await;
        check(&charge(&store).await.unwrap_err(), ErrorKind::Timeout, Applied::Unknown);
        server.thaw().await;
        // The same connection works again.
        used(&store, "k").await;
    }
}

#[tokio::test]
async fn the_connections_own_time_limit_may_be_shorter() {
    let server = Server::start(&[]).await;
    let limits = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_millis(200)));
    let client = Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection_with_config(&limits).await.unwrap();
    let store = RedisStore::with_connection(connection, config(PATIENCE * 2)).unwrap();
    server.freeze().await;
    let error = charge(&store).await.unwrap_err();
    check(&error, ErrorKind::Timeout, Applied::Unknown);
    assert!(error.to_string().contains("the connection's own time limit"), "{error}");
    server.thaw().await;
    assert!(used(&store, "k").await <= 1);
}

#[tokio::test]
async fn forgotten_scripts_are_sent_along() {
    let server = Server::start(&[]).await;
    let ways = [
        Way::Connection,
        Way::Manager,
        #[cfg(feature = "deadpool")]
        Way::Pool,
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let settings =
            RedisConfig::from_url(&server.url()).unwrap().timeout(PATIENCE).prefix(format!("w{number}:"));
        let store = way.open(&settings, &[server.url()]).await.unwrap();
        for flush in [true, false] {
            for round in [1, 2] {
                if flush {
                    assert!(server.say("SCRIPT FLUSH").contains("OK"));
                }
                let charged = charge(&store).await.unwrap();
                assert_eq!(used(&store, "k").await, 1, "round {round}");
                if flush {
                    assert!(server.say("SCRIPT FLUSH").contains("OK"));
                }
                let limit = limit();
                let id = MeterId { namespace: "n", scope: limit.scope(), key: b"k" };
                let receipt = charged.verdicts[0].receipt;
                let refund = Refund { id, cost: 1, meter: limit.meter_for(b"k"), receipt };
                store.refund(NOW, &[refund]).await.unwrap();
                assert_eq!(used(&store, "k").await, 0, "round {round}");
            }
        }
    }
}

#[tokio::test]
async fn cluster_connections_must_be_passed_as_such() {
    let cluster = common::testbed().redis_cluster().await.unwrap();
    let client = ClusterClientBuilder::new(cluster.urls()).retries(0).build().unwrap();
    let connection_to_it = client.get_async_connection().await.unwrap();
    let keys = ["a", "b", "c", "d", "e", "f"];

    let wrong = RedisStore::with_connection(connection_to_it.clone(), config(PATIENCE)).unwrap();
    // A call with all keys in one slot is decided.
    assert!(send_claim(&wrong, Mode::Charge, &["a"]).await.unwrap().admitted);
    let error = send_claim(&wrong, Mode::Charge, &keys).await.unwrap_err();
    check(&error, ErrorKind::Unsupported, Applied::No);
    assert!(error.to_string().contains("with_cluster_connection"), "{error}");
    assert!(!error.is_retryable());

    // A connection to one node is not a connection to the cluster.
    let node = connection(Client::open(cluster.urls()[0].as_str()).unwrap()).await.unwrap();
    let wrong = RedisStore::with_connection(node, config(PATIENCE)).unwrap();
    let mut elsewhere = 0;
    for key in keys {
        if let Err(error) = send_claim(&wrong, Mode::Peek, &[key]).await {
            check(&error, ErrorKind::Unsupported, Applied::No);
            elsewhere += 1;
        }
    }
    assert!(elsewhere > 0, "all keys are on one node");

    let right = RedisStore::with_cluster_connection(connection_to_it, config(PATIENCE)).unwrap();
    assert_eq!(right.promises().decisions, Decisions::ExactPerKey);
    let seen = send_claim(&right, Mode::Peek, &keys).await.unwrap();
    let left: Vec<_> = seen.verdicts.iter().map(|verdict| verdict.remaining).collect();
    assert_eq!(left, [99, 100, 100, 100, 100, 100], "what failed was charged");
    assert!(send_claim(&right, Mode::Charge, &keys).await.unwrap().admitted);
    assert_eq!((used(&right, "a").await, used(&right, "f").await), (2, 1));
}

/// What the documentation says about `retries`: each attempt that was sent is executed.
#[tokio::test]
async fn a_cluster_client_without_retries_sends_a_call_once() {
    let cluster = common::testbed().redis_cluster().await.unwrap();
    for (retries, key, executed) in [(0, "once", 1), (3, "again", 4)] {
        let client = ClusterClientBuilder::new(cluster.urls())
            .retries(retries)
            .response_timeout(Duration::from_millis(200))
            .overall_response_timeout(None)
            .build()
            .unwrap();
        let connection = loop {
            match client.get_async_connection().await {
                Ok(connection) => break connection,
                Err(error) => assert!(error.is_timeout() || error.is_io_error(), "{error}"),
            }
        };
        let store = RedisStore::with_cluster_connection(connection, config(PATIENCE / 2)).unwrap();
        assert_eq!(used(&store, key).await, 0);
        cluster.freeze().await.unwrap();
        // The client polls the calls that it repeats only when another call arrives.
        let others = tokio::spawn({
            let store = store.clone();
            async move {
                let mut others = tokio::task::JoinSet::new();
                loop {
                    let store = store.clone();
                    others.spawn(async move { send_claim(&store, Mode::Peek, &[key]).await });
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        let error = send_claim(&store, Mode::Charge, &[key]).await.unwrap_err();
        others.abort();
        cluster.thaw().await.unwrap();
        check(&error, ErrorKind::Timeout, Applied::Unknown);
        // An earlier call on the same connection is executed before this one.
        assert_eq!(used(&store, key).await, executed, "{retries} retries");
    }
}

#[cfg(feature = "deadpool")]
mod pools {
    use super::*;
    use common::ways::pool;

    #[tokio::test]
    async fn waiting_for_the_pool_charges_nothing() {
        let server = Server::start(&[]).await;
        let pool = pool(&server.url(), 1).unwrap();
        let store = RedisStore::with_pool(pool.clone(), config(Duration::from_millis(300))).unwrap();
        let patient = RedisStore::with_pool(pool.clone(), config(PATIENCE)).unwrap();
        assert!(charge(&patient).await.unwrap().admitted);
        let held = pool.get().await.unwrap();
        let error = charge(&store).await.unwrap_err();
        check(&error, ErrorKind::Unreachable, Applied::No);
        let printed = error.to_string();
        assert!(
            printed.contains("the pool gave no connection") && printed.contains("nothing was charged"),
            "{error}"
        );
        // A caller with a longer time limit gets the connection.
        let waiting = tokio::spawn({
            let patient = patient.clone();
            async move { charge(&patient).await }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(waiting.await.unwrap().unwrap().admitted);
        assert_eq!(used(&patient, "k").await, 2);
        pool.close();
        let error = charge(&patient).await.unwrap_err();
        check(&error, ErrorKind::Unsupported, Applied::No);
        assert!(error.to_string().contains("the pool has been closed"), "{error}");
    }

    #[tokio::test]
    async fn a_pool_reconnects_to_a_restarted_server() {
        let server = Server::start(&[]).await;
        let pool = pool(&server.url(), 2).unwrap();
        let store = RedisStore::with_pool(pool, config(Duration::from_secs(5))).unwrap();
        assert!(charge(&store).await.unwrap().admitted);
        server.kill().await;
        // The pool sends a `PING` before it lends the connection, so the call is not sent.
        check(&charge(&store).await.unwrap_err(), ErrorKind::Unreachable, Applied::No);
        server.restart().await;
        assert!(charge(&store).await.unwrap().admitted);
        assert_eq!(used(&store, "k").await, 1);
    }

    /// Otherwise they would be answered `READONLY` for ever.
    #[tokio::test]
    async fn a_pool_closes_its_connections_to_a_server_that_has_become_a_replica() {
        let server = Server::start(&[]).await;
        let pool = pool(&server.url(), 2).unwrap();
        let store = RedisStore::with_pool(pool.clone(), config(PATIENCE)).unwrap();
        let held = pool.get().await.unwrap();
        assert!(charge(&store).await.unwrap().admitted);
        drop(held);
        assert_eq!(pool.status().size, 2);
        assert!(server.say("REPLICAOF 127.0.0.1 1").contains("+OK"));
        charge(&store).await.unwrap_err();
        assert_eq!(pool.status().size, 0, "its connections stay");
        assert!(server.say("REPLICAOF NO ONE").contains("+OK"));
        assert!(charge(&store).await.unwrap().admitted);
    }

    #[tokio::test]
    async fn waiting_for_the_pool_of_a_frozen_server_ends_at_the_deadline() {
        let server = Server::start(&[]).await;
        let pool = pool(&server.url(), 2).unwrap();
        let store = RedisStore::with_pool(pool, config(Duration::from_millis(300))).unwrap();
        used(&store, "k").await;
        server.freeze().await;
        for _ in 0..3 {
            check(&charge(&store).await.unwrap_err(), ErrorKind::Unreachable, Applied::No);
        }
        server.thaw().await;
        assert_eq!(used(&store, "k").await, 0);
    }
}

/// With it, a cluster would spread the limits of one key over several slots.
#[tokio::test]
async fn a_prefix_with_empty_braces_is_refused() {
    let server = Server::start(&[]).await;
    let config = config(PATIENCE).prefix("a{}:");
    let error = RedisStore::with_connection(manager(&server.url()).await.unwrap(), config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}
