//! A primary that sentinels replace under load.
#![allow(clippy::disallowed_methods)] // deadlines are kept on the machine's clock

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::say;
use ratelimit_core::store::{Answer, Claim, Claims, Decisions, MeterId, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::{Redis, Sentinel};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// The time limit of a call, and how much later a busy machine may report that it has passed.
const LIMIT: Duration = Duration::from_secs(5);
const NOTICED: Duration = Duration::from_secs(30);

/// Within this time the sentinels have replaced a primary and the store has found the new one.
const REPLACED: Duration = Duration::from_secs(180);

/// How long the sentinels wait for a primary that does not answer: longer than a busy machine delays an answer.
const PATIENCE: Duration = Duration::from_secs(3);

fn config(url: &str) -> Result<RedisConfig, StoreError> {
    Ok(RedisConfig::from_url(url)?.timeout(LIMIT))
}

async fn connect(url: &str) -> Result<RedisStore, StoreError> {
    let since = Instant::now();
    let store = RedisStore::connect_with(config(url)?).await;
    assert!(since.elapsed() < LIMIT + NOTICED, "connecting took {:?}", since.elapsed());
    store
}

async fn start() -> (Sentinel, RedisStore) {
    let sentinel = common::testbed().redis_sentinel(PATIENCE).await.unwrap();
    let store = connect(&sentinel.url()).await.unwrap();
    (sentinel, store)
}

async fn send_claim(store: &RedisStore, mode: Mode) -> Result<Answer, StoreError> {
    let limit: Limit = "1000000/h".parse().unwrap();
    let id = MeterId { namespace: "n", scope: limit.scope(), key: b"k" };
    let claim = [Claim { id, cost: 1, meter: limit.meter_for(b"k") }];
    let since = Instant::now();
    let answer = store.claim(Claims::new(NOW, mode, &claim).unwrap()).await;
    assert!(since.elapsed() < LIMIT + NOTICED, "a call took {:?}: {answer:?}", since.elapsed());
    answer
}

/// Charges until it is admitted, and returns the errors before that.
async fn recovers(store: &RedisStore) -> (Answer, Vec<StoreError>) {
    let (since, mut errors) = (Instant::now(), Vec::new());
    loop {
        match send_claim(store, Mode::Charge).await {
            Ok(answer) => return (answer, errors),
            Err(error) => {
                assert!(since.elapsed() < REPLACED, "after {:?}: {error}", since.elapsed());
                assert!(error.is_retryable(), "{error}");
                errors.push(error);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn used(answer: &Answer) -> u64 {
    1_000_000 - answer.verdicts[0].remaining
}

/// The number of keys on a server that a store has written.
fn keys(port: u16) -> usize {
    say(port, "KEYS rl:*").matches("rl:").count()
}

/// Charges five units and waits until the replica has them.
async fn charge_five(store: &RedisStore, primary: u16) {
    for nth in 1..=5 {
        let answer = send_claim(store, Mode::Charge).await.unwrap();
        assert!(answer.charged && used(&answer) == nth, "{answer:?}");
    }
    assert_eq!(say(primary, "WAIT 1 30000").trim(), ":1");
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_follow_the_failover_of_a_killed_primary() {
    let (sentinel, store) = start().await;
    assert_eq!(store.promises().decisions, Decisions::Exact);
    let old = sentinel.primary().await.unwrap();
    charge_five(&store, old.address().port()).await;
    // A promoted server may not have the scripts.
    for server in sentinel.servers() {
        say(server.address().port(), "SCRIPT FLUSH");
    }

    old.kill().await.unwrap();
    let (answer, errors) = recovers(&store).await;
    assert_eq!(used(&answer), 6, "what the replica had received still counts");
    let first = errors.first().expect("nothing failed while there was no primary").to_string();
    assert!(first.contains(&old.address().to_string()), "{first}");

    // The old primary returns as a replica.
    assert_ne!(sentinel.primary().await.unwrap().address(), old.address());
    sentinel.start().await.unwrap();
    let (answer, _) = recovers(&store).await;
    charge_more(&store, used(&answer)).await;
}

/// The next charges are counted in sequence.
async fn charge_more(store: &RedisStore, used_before: u64) {
    for nth in 1..=3 {
        let answer = send_claim(store, Mode::Charge).await.unwrap();
        assert_eq!(used(&answer), used_before + nth);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_follow_the_failover_of_a_frozen_primary() {
    let (sentinel, store) = start().await;
    let old = sentinel.primary().await.unwrap();
    charge_five(&store, old.address().port()).await;
    old.freeze().await.unwrap();
    let (answer, errors) = recovers(&store).await;
    assert_eq!(used(&answer), 6, "what the replica had received still counts");
    assert!(errors.iter().any(|error| error.kind() == ErrorKind::Timeout), "{errors:?}");
    old.thaw().await.unwrap();
    // For a moment the old primary still reports itself as one.
    charge_more(&store, 6).await;
    assert_ne!(sentinel.primary().await.unwrap().address(), old.address());
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_follow_a_requested_failover_under_load() {
    let (sentinel, store) = start().await;
    let old = sentinel.primary().await.unwrap();
    charge_five(&store, old.address().port()).await;
    let (over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let task = |_| {
        let (store, over, answers) = (store.clone(), over.clone(), answers.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                match send_claim(&store, Mode::Charge).await {
                    Ok(answer) => assert!(answer.charged, "{answer:?}"),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
                answers.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    let tasks: Vec<_> = (0..4).map(task).collect();
    sentinel.fail_over().await.unwrap();
    recovers(&store).await;
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(answers.load(Ordering::SeqCst) > 0);

    assert!(say(old.address().port(), "ROLE").contains("slave"));
    let new = sentinel.primary().await.unwrap();
    assert_ne!(new.address(), old.address());
    let before = send_claim(&store, Mode::Peek).await.unwrap();
    charge_more(&store, used(&before)).await;
    assert!(used(&before) >= 5, "what the replica had received still counts");
    assert_eq!(keys(new.address().port()), 1);
}

/// Being named is not enough: a server that reports itself as a replica is not the primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_named_by_the_sentinels_is_not_used() {
    let sentinel = common::testbed().redis_sentinel(Duration::from_secs(300)).await.unwrap();
    let store = connect(&sentinel.url()).await.unwrap();
    charge_five(&store, sentinel.primary().await.unwrap().address().port()).await;
    let (primary, replica) = (common::Server::start(&[]).await, common::Server::start(&[]).await);
    replica.say(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    sentinel.tell(&["SENTINEL", "REMOVE", "limits"]).await.unwrap();
    let port = replica.port.to_string();
    sentinel.tell(&["SENTINEL", "MONITOR", "limits", "127.0.0.1", &port, "2"]).await.unwrap();
    let error = connect(&sentinel.url()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::ReadOnly && error.is_retryable(), "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
    // A store whose primary works stays with it.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for nth in 6..20 {
        assert_eq!(used(&send_claim(&store, Mode::Charge).await.unwrap()), nth);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The sentinels have replaced a primary that still answers the store: no call fails, and the store leaves it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn stores_leave_an_answering_primary_that_the_sentinels_replaced() {
    let (sentinel, store) = start().await;
    let old = sentinel.primary().await.unwrap();
    charge_five(&store, old.address().port()).await;
    let other = common::Server::start(&[]).await;
    sentinel.tell(&["SENTINEL", "REMOVE", "limits"]).await.unwrap();
    let port = other.port.to_string();
    sentinel.tell(&["SENTINEL", "MONITOR", "limits", "127.0.0.1", &port, "2"]).await.unwrap();
    let since = Instant::now();
    while keys(other.port) == 0 {
        assert!(since.elapsed() < REPLACED, "the store stays at the primary that was given up");
        send_claim(&store, Mode::Charge).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_and_frozen_sentinels_do_not_delay_calls() {
    let (sentinel, store) = start().await;
    let [first, second, third] = sentinel.sentinels() else { panic!("three sentinels") };
    first.kill().await.unwrap();
    second.freeze().await.unwrap();
    let another = connect(&sentinel.url()).await.unwrap();
    for store in [&store, &another] {
        assert!(send_claim(store, Mode::Charge).await.unwrap().charged);
    }
    third.kill().await.unwrap();
    // A store that knows the primary needs no sentinel.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for nth in 3..20 {
        assert_eq!(used(&send_claim(&store, Mode::Charge).await.unwrap()), nth);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    second.kill().await.unwrap();
    let error = connect(&sentinel.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let text = error.to_string();
    assert!(sentinel.sentinels().iter().any(|at| text.contains(&at.address().to_string())), "{text}");
    // The sentinels are found again.
    let lazy = RedisStore::lazy(config(&sentinel.url()).unwrap()).unwrap();
    assert!(send_claim(&lazy, Mode::Peek).await.is_err());
    third.start().await.unwrap();
    assert_eq!(used(&recovers(&lazy).await.0), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_explain_wrong_addresses_and_passwords() {
    let redis = Redis { password: Some("secret".to_owned()), ..Redis::default() };
    let sentinel = common::testbed().redis_sentinel_with(redis, PATIENCE).await.unwrap();
    let url = sentinel.url();
    let store = connect(&url).await.unwrap();
    assert!(send_claim(&store, Mode::Charge).await.unwrap().charged);
    assert!(!format!("{store:?}").contains("secret"), "{store:?}");

    let fails = async |url: &str, kind: ErrorKind, parts: &[&str]| {
        let error = connect(url).await.expect_err(url);
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
        assert!(!text.contains("secret"), "{text}");
    };
    let misspelt = url.replace("/limits", "/limit");
    fails(&misspelt, ErrorKind::Unsupported, &["\"limit\"", "\"limits\""]).await;
    let primary = sentinel.primary().await.unwrap().address();
    let no_sentinel = format!("redis+sentinel://:secret@{primary}/limits");
    fails(&no_sentinel, ErrorKind::Denied, &["sentinel_password", &primary.to_string()]).await;
    let no_sentinel = format!("{no_sentinel}?sentinel_password=secret");
    fails(&no_sentinel, ErrorKind::Unsupported, &["not a sentinel", &primary.to_string()]).await;
    let stranger = url.replace(":secret", ":wrong");
    fails(&stranger, ErrorKind::Denied, &["log-in", &primary.to_string()]).await;
    let several = format!("redis://:secret@{primary},{primary}/");
    fails(&several, ErrorKind::Misconfigured, &["redis+sentinel://"]).await;

    // Sentinels with their own password.
    sentinel.tell(&["ACL", "SETUSER", "default", "resetpass", ">watch"]).await.unwrap();
    fails(&url, ErrorKind::Denied, &["sentinel_password"]).await;
    connect(&format!("{url}?sentinel_password=watch")).await.unwrap();
    connect(&format!("{url}/0?sentinel_user=default&sentinel_password=watch")).await.unwrap();
}
