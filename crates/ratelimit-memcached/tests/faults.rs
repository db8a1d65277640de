//! Servers that are down, die, freeze, run out of memory or hold foreign values.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Limiter, START, limiter};
use ratelimit_core::store::Applied;
use ratelimit_core::{CheckError, Decision, ErrorKind, Limit, ManualClock, RateLimiter, Request, StoreError};
use ratelimit_memcached::MemcachedStore;

/// The maximum duration of a call, even on a busy machine.
const NEVER_A_HANG: Duration = Duration::from_secs(20);

async fn failure(limiter: &Limiter) -> StoreError {
    match tokio::time::timeout(NEVER_A_HANG, limiter.check("k")).await.expect("it hangs") {
        Err(CheckError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_by_the_next_call() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    for limit in ["3/h", "3/h burst 3", "3/h log"] {
        let limiter = limiter(&store, limit);
        for _ in 0..3 {
            assert!(limiter.check("k").await.unwrap().allowed());
        }
        server.restart().await;
        assert!(limiter.check("k").await.unwrap().allowed(), "{limit}");
        server.kill().await;
        let error = failure(&limiter).await;
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No), "{error}");
        assert_eq!(error.address(), Some(&*server.address()));
        server.restart().await;
        assert_eq!(limiter.check("k").await.unwrap().remaining(), 2, "{limit}");
    }
}

/// The store's runtime was not running when the server restarted, and has not noticed.
#[test]
fn a_server_that_restarts_between_two_calls_is_used_by_the_second() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (callers, servers) = (runtime(), runtime());
    let server = servers.block_on(common::Server::start(&[]));
    for limit in ["3/h", "3/h burst 3", "3/h log"] {
        let limiter = limiter(&callers.block_on(server.store()), limit);
        for _ in 0..2 {
            assert_eq!(callers.block_on(limiter.check("k")).unwrap().remaining(), 2, "{limit}");
            servers.block_on(server.restart());
        }
    }
}

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_used_once_it_is_up() {
    let server = common::Server::start(&[]).await;
    server.kill().await;
    let refused = MemcachedStore::connect_with(server.config()).await.unwrap_err();
    assert_eq!((refused.kind(), refused.applied()), (ErrorKind::Unreachable, Applied::No), "{refused}");
    assert_eq!(refused.address(), Some(&*server.address()));
    let limiter = limiter(&MemcachedStore::lazy(server.config()).unwrap(), "3/h");
    for _ in 0..2 {
        let error = failure(&limiter).await;
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No), "{error}");
    }
    server.restart().await;
    assert_eq!(limiter.check("k").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn calls_to_a_frozen_server_time_out() {
    let server = common::Server::start(&[]).await;
    for limit in ["100000/h", "100000/h burst 100000", "100000/h log"] {
        let timeout = Duration::from_millis(300);
        let config = server.config().timeout(timeout).connections(1);
        let limiter = limiter(&MemcachedStore::lazy(config).unwrap(), limit);
        answered(&limiter).await;
        server.freeze().await;
        // At that point a bucket or a log has only been read.
        let applied = if limit == "100000/h" { Applied::Unknown } else { Applied::No };
        let late = failure(&limiter).await;
        assert_eq!((late.kind(), late.applied()), (ErrorKind::Timeout, applied), "{limit}: {late}");
        assert!(late.to_string().starts_with(&format!("memcached at {} did not", server.address())));
        for _ in 0..2 {
            // The machine accepts the next connection, but nobody answers the handshake.
            let late = failure(&limiter).await;
            assert_eq!(
                (late.kind(), late.applied()),
                (ErrorKind::Unreachable, Applied::No),
                "{limit}: {late}"
            );
        }
        server.thaw().await;
        answered(&limiter).await;
    }
}

/// A call that waits in vain for another one on the same meter has sent nothing.
#[tokio::test]
async fn calls_that_wait_for_their_turn_have_charged_nothing() {
    let server = common::Server::start(&[]).await;
    for limit in ["100000/h burst 100000", "100000/h log"] {
        let config = server.config().timeout(Duration::from_secs(1)).connections(1);
        let limiter = limiter(&MemcachedStore::lazy(config).unwrap(), limit);
        answered(&limiter).await;
        server.freeze().await;
        let (_, waiting) = tokio::join!(failure(&limiter), failure(&limiter));
        assert_eq!(
            (waiting.kind(), waiting.applied()),
            (ErrorKind::Contended, Applied::No),
            "{limit}: {waiting}"
        );
        server.thaw().await;
        answered(&limiter).await;
    }
}

/// More than fits into the connection's queue: a caller that waits for room gets its timeout in time as well.
#[tokio::test]
async fn many_calls_to_a_frozen_server_time_out() {
    let server = common::Server::start(&[]).await;
    let config = server.config().timeout(Duration::from_millis(500)).connections(1);
    let limiter = Arc::new(limiter(&MemcachedStore::lazy(config).unwrap(), "100000/h"));
    answered(&limiter).await;
    server.freeze().await;
    let asked = (0..40).map(|task| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let keys: Vec<_> = (0..500).map(|nth| format!("{task}-{nth}-{}", "x".repeat(150))).collect();
            let answers = limiter.check_many(&keys).await;
            answers.into_iter().map(|answer| answer.map(Decision::into_owned)).collect::<Vec<_>>()
        })
    });
    let mut reported = [0; 2];
    for asked in asked.collect::<Vec<_>>() {
        let decisions = tokio::time::timeout(NEVER_A_HANG, asked).await.expect("it hangs").unwrap();
        assert_eq!(decisions.len(), 500);
        for decision in decisions {
            let Err(CheckError::Store(error)) = decision else { panic!("it has an answer") };
            assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unreachable), "{error}");
            reported[usize::from(error.applied() == Applied::No)] += 1;
        }
    }
    assert!(reported[0] > 0 && reported[1] > 0, "{reported:?}");
    server.thaw().await;
    answered(&limiter).await;
}

/// A reply within the store's time limit, which a busy machine may miss at first.
async fn answered(limiter: &Limiter) {
    for _ in 0..100 {
        match limiter.check("k").await {
            Ok(decision) => return assert!(decision.allowed()),
            Err(CheckError::Store(error)) => assert!(error.is_retryable(), "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no answer");
}

#[tokio::test]
async fn foreign_values_are_errors_and_charge_no_other_limit() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    let hour = START.as_nanos() / 3_600_000_000_000;
    for (limit, key) in [
        ("5/h fixed", format!("rl!!fixed:1h!k!{hour}")),
        ("5/h", format!("rl!!sliding:1h!k!{}", hour - 1)),
        ("5/h burst 5", "rl!!bucket:1h!k".to_owned()),
        ("5/h log", "rl!!log:1h!k".to_owned()),
    ] {
        let limit: Limit = limit.parse().unwrap();
        let scope = limit.scope().to_owned();
        let key = key.replace("fixed:1h", &scope).replace("sliding:1h", &scope);
        let key = key.replace("bucket:1h", &scope).replace("log:1h", &scope);
        server.say(&format!("ms {key} 7 T60\r\nforeign\r\n"), "HD");
        let other: Limit = "7/h name other".parse().unwrap();
        let both = ratelimit_core::Limits::new([other.clone(), limit]).unwrap();
        let both = RateLimiter::new(store.clone(), both).with_clock(ManualClock::at(START));
        for _ in 0..3 {
            let error = failure(&both).await;
            assert_eq!((error.kind(), error.applied()), (ErrorKind::Corrupt, Applied::No), "{key}: {error}");
            let reported = (error.store(), error.address(), error.is_retryable());
            assert_eq!(reported, ("memcached", Some(&*server.address()), false), "{error}");
            assert!(!error.to_string().contains("rl!"), "{error}");
        }
        let alone = RateLimiter::new(store.clone(), other).with_clock(ManualClock::at(START));
        assert_eq!(alone.peek("k").await.unwrap().remaining(), 7, "{key}");
    }
}

/// A window and a bucket are refunded in sequence: when the bucket fails, the window's units have been given back.
#[tokio::test]
async fn partially_failed_refunds_may_have_been_applied() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    let limits: ratelimit_core::Limits = "5/h fixed; 5/h burst 5".parse().unwrap();
    let scope = limits[1].scope().to_owned();
    let window = RateLimiter::new(store.clone(), limits[0].clone()).with_clock(ManualClock::at(START));
    let both = RateLimiter::new(store.clone(), limits).with_clock(ManualClock::at(START));
    let decision = both.check(Request::new("k").cost(3)).await.unwrap();
    server.say(&format!("ms rl!!{scope}!k 7 T60\r\nforeign\r\n"), "HD");
    let error = both.refund(&decision).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Corrupt, Applied::Unknown), "{error}");
    assert_eq!(window.peek("k").await.unwrap().remaining(), 5);
}

/// Memcached deletes an item that it cannot rewrite, and with it the count. If it evicts nothing, each second check of a full
/// server would be admitted.
#[tokio::test]
async fn servers_that_delete_what_they_cannot_rewrite_are_refused() {
    for (options, reported) in [(["-m", "8", "-M"], "-M"), (["-m", "8", "-I512k"], "max_item_size")] {
        let server = common::Server::start(&options).await;
        let error = MemcachedStore::connect_with(server.config()).await.unwrap_err();
        let limiter = limiter(&MemcachedStore::lazy(server.config()).unwrap(), "5/h");
        let checked = limiter.check("k").await;
        let Err(CheckError::Store(later)) = checked else { panic!("{checked:?}") };
        for error in [error, later] {
            assert_eq!((error.kind(), error.applied()), (ErrorKind::Misconfigured, Applied::No), "{error}");
            assert!(error.to_string().contains(reported), "{error}");
            assert_eq!(error.address(), Some(&*server.address()));
        }
    }
    let server = common::Server::start(&["-I512k"]).await;
    MemcachedStore::connect_with(server.config().max_item_size(512 * 1024)).await.unwrap();
}

/// A connection whose runtime has shut down is replaced.
#[test]
fn a_store_survives_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime().block_on(common::Server::start(&[]));
    let store = runtime().block_on(server.store());
    for left in [99, 98] {
        let limiter = limiter(&store, "100/h");
        let decision = runtime().block_on(limiter.check("k")).unwrap();
        assert_eq!(decision.remaining(), left);
    }
}

#[tokio::test]
async fn unreachable_and_invalid_addresses_are_errors() {
    let error = MemcachedStore::connect(&format!("127.0.0.1:{}", common::free_port())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert_eq!(
        MemcachedStore::connect("memcached://a:b:c").await.unwrap_err().kind(),
        ErrorKind::Misconfigured
    );
}
