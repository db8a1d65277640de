//! Servers that die, freeze, run out of memory or hold foreign values; long lifetimes; several servers.

mod common;

use std::time::Duration;

use ratelimit_core::{
    Applied, CheckError, ErrorKind, Limit, MAX_UNITS, ManualClock, RateLimiter, Request, StoreError,
    Timestamp,
};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

type Limiter = RateLimiter<MemcachedStore, ManualClock>;

fn limiter(store: &MemcachedStore, limit: &str) -> Limiter {
    RateLimiter::new(store.clone(), limit.parse::<Limit>().unwrap()).with_clock(ManualClock::at(START))
}

async fn failure(limiter: &Limiter) -> StoreError {
    match limiter.check("k").await {
        Err(CheckError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_by_the_next_call() {
    let mut server = common::Server::start(&[]);
    let store = server.store().await;
    for limit in ["3/h", "3/h burst 3", "3/h log"] {
        let limiter = limiter(&store, limit);
        for _ in 0..3 {
            assert!(limiter.check("k").await.unwrap().allowed());
        }
        server.restart();
        assert!(limiter.check("k").await.unwrap().allowed(), "{limit}");
        server.kill();
        let error = failure(&limiter).await;
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No), "{error}");
        assert_eq!(error.address(), Some(&*server.address()));
        server.restart();
        assert_eq!(limiter.check("k").await.unwrap().remaining(), 2, "{limit}");
    }
}

#[tokio::test]
async fn a_frozen_server_is_a_timeout_in_time() {
    let server = common::Server::start(&[]);
    let config = MemcachedConfig { timeout: Duration::from_millis(300), connections: 1, ..server.config() };
    let limiter = limiter(&MemcachedStore::lazy(config).unwrap(), "100000/h");
    answered(&limiter).await;
    server.signal("STOP");
    for _ in 0..3 {
        let late = tokio::time::timeout(Duration::from_secs(20), failure(&limiter)).await.unwrap();
        assert_eq!((late.kind(), late.applied()), (ErrorKind::Timeout, Applied::Unknown), "{late}");
    }
    server.signal("CONT");
    answered(&limiter).await;
}

/// An answer within the store's time limit, which a busy machine may miss at first.
async fn answered(limiter: &Limiter) {
    for _ in 0..100 {
        match limiter.check("k").await {
            Ok(decision) => return assert!(decision.allowed()),
            Err(CheckError::Store(error)) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no answer");
}

#[tokio::test]
async fn foreign_values_are_errors_and_charge_no_other_limit() {
    let server = common::Server::start(&[]);
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
            assert!(error.address().is_some() && !error.to_string().contains("rl!"), "{error}");
        }
        let alone = RateLimiter::new(store.clone(), other).with_clock(ManualClock::at(START));
        assert_eq!(alone.peek("k").await.unwrap().remaining(), 7, "{key}");
    }
}

#[tokio::test]
async fn a_full_server_says_so() {
    let server = common::Server::start(&["-m", "2", "-M"]);
    let store = server.store().await;
    let mut kinds = Vec::new();
    for limit in ["5/h fixed", "1000/h log"] {
        let limiter = limiter(&store, limit);
        for nth in 0..60_000 {
            match limiter.check(Request::new(&format!("{limit} {nth}")).cost(5)).await {
                Ok(decision) => assert!(decision.allowed()),
                Err(CheckError::Store(error)) => {
                    assert_eq!(error.applied(), Applied::No);
                    kinds.push(error.kind());
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(kinds, [ErrorKind::Full; 2]);
}

#[tokio::test]
async fn a_log_that_cannot_be_stored_is_refused_from_the_start() {
    let server = common::Server::start(&[]);
    let store = server.store().await;
    let error = failure(&limiter(&store, "200000/h log")).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // The largest that fits does fit.
    let most = limiter(&store, "131000/h log");
    assert!(most.check(Request::new("k").cost(131_000)).await.unwrap().allowed());
    assert!(!most.check("k").await.unwrap().allowed());
}

/// Beyond thirty days a lifetime is a date; read as an interval, or cut short, it would let everybody in again.
#[tokio::test]
async fn long_periods_are_kept() {
    let server = common::Server::start(&[]);
    let store = server.store().await;
    for limit in ["3/40d fixed", "3/40d", "3/40d burst 3", "3/40d log", "3/3660d fixed", "3/3660d"] {
        let limiter = limiter(&store, limit);
        for _ in 0..3 {
            assert!(limiter.check(limit).await.unwrap().allowed(), "{limit}");
        }
        assert!(!limiter.check(limit).await.unwrap().allowed(), "{limit}");
    }
    let keys = server.keys();
    assert_eq!(keys.len(), 6, "{keys:?}");
    for (key, life) in keys {
        let least = if key.contains("3660d") { 3_650 } else { 40 } * 86_400;
        assert!((least..=12 * 366 * 86_400).contains(&life), "{key} lives {life} s");
    }
}

#[tokio::test]
async fn the_largest_counts_stay_in_bounds() {
    let server = common::Server::start(&[]);
    let store = server.store().await;
    let limiter = limiter(&store, &format!("{MAX_UNITS}/h fixed"));
    for _ in 0..20 {
        let charged = limiter.charge(Request::new("k").cost(u64::MAX)).await.unwrap();
        assert_eq!(charged.remaining(), 0);
    }
    let hour = START.as_nanos() / 3_600_000_000_000;
    let scope = limiter.limits()[0].scope().to_owned();
    let value = server.say(&format!("mg rl!!{scope}!k!{hour} v\r\nmn\r\n"), "MN");
    assert_eq!(value[1].trim().parse(), Ok(MAX_UNITS), "{value:?}");
}

/// Additions alone do not mark an item as used; every claim therefore also reads its counter.
#[tokio::test]
async fn counters_in_use_are_not_evicted() {
    let server = common::Server::start(&["-m", "2"]);
    let limiter = limiter(&server.store().await, "100000/h fixed");
    let mut used = 0;
    for round in 0..150 {
        for _ in 0..3 {
            used += 1;
            // As long as the others: they have to be of one size to displace each other.
            assert_eq!(limiter.check("in-use").await.unwrap().remaining(), 100_000 - used, "round {round}");
        }
        let names: Vec<String> = (0..1_000).map(|nth| format!("{:06}", round * 1_000 + nth)).collect();
        for answer in limiter.check_many(&names).await {
            answer.unwrap();
        }
    }
    assert!(server.stat("evictions") > 50_000, "{} evictions", server.stat("evictions"));
}

#[tokio::test]
async fn several_servers_share_the_keys_and_others_go_on_when_one_dies() {
    let mut servers = [common::Server::start(&[]), common::Server::start(&[])];
    let config = |order: [usize; 2]| MemcachedConfig {
        servers: order.iter().map(|nth| servers[*nth].address()).collect(),
        ..servers[0].config()
    };
    let (there, back) = (config([0, 1]), config([1, 0]));
    let there = MemcachedStore::connect_with(there).await.unwrap();
    let back = MemcachedStore::connect_with(back).await.unwrap();
    for limit in ["10/h", "10/h precision 15min", "10/h burst 10", "10/h log"] {
        let (there, back) = (limiter(&there, limit), limiter(&back, limit));
        let keys: Vec<String> = (0..50).map(|nth| format!("user:{nth}")).collect();
        for key in &keys {
            assert_eq!(there.check(Request::new(key).cost(4)).await.unwrap().remaining(), 6);
        }
        let answers = back.check_many(keys.iter().map(|key| Request::new(key).cost(4))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().remaining() == 2));
        // Both keys or none, on whichever server they are.
        for pair in keys.windows(2) {
            assert!(there.check(Request::new(&pair[0]).cost(2)).await.unwrap().allowed());
            let refused =
                back.check(Request::new(&pair[0]).and(Request::new(&pair[1])).cost(1)).await.unwrap();
            assert!(!refused.allowed());
            assert_eq!(back.peek(&pair[1]).await.unwrap().remaining(), 2);
        }
    }
    assert!(servers.iter().all(|server| server.stat("curr_items") > 50));
    servers[0].kill();
    let limiter = limiter(&there, "10/h name later");
    let keys: Vec<String> = (0..40).map(|nth| format!("user:{nth}")).collect();
    let answers = limiter.check_many(keys.iter().map(Request::new)).await;
    let failed = answers.iter().filter(|answer| answer.is_err()).count();
    assert!((5..35).contains(&failed), "{failed} of 40 failed");
}

#[tokio::test]
async fn big_batches_get_through() {
    let server = common::Server::start(&[]);
    let store = server.store().await;
    let limiter = limiter(&store, "100000/h precision 1s");
    let answers = limiter.check_many(["k"; 40]).await;
    let left: Vec<u64> = answers.into_iter().map(|answer| answer.unwrap().remaining()).collect();
    assert_eq!(left, (0..40).map(|nth| 99_999 - nth).collect::<Vec<_>>());
    let log =
        RateLimiter::new(store, "100000/h log".parse::<Limit>().unwrap()).with_clock(ManualClock::at(START));
    let keys: Vec<String> = (0..20).map(|nth| format!("user:{nth}")).collect();
    for answer in log.check_many(keys.iter().map(|key| Request::new(key).cost(100_000))).await {
        assert!(answer.unwrap().allowed());
    }
}

/// A connection that belongs to a runtime that has ended is replaced.
#[test]
fn a_store_survives_its_runtime() {
    let server = common::Server::start(&[]);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime().block_on(server.store());
    for left in [99, 98] {
        let decision = runtime().block_on(limiter(&store, "100/h").check("k")).unwrap();
        assert_eq!(decision.remaining(), left);
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_an_error_at_once() {
    let error = MemcachedStore::connect(&format!("127.0.0.1:{}", common::free_port())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert_eq!(MemcachedStore::connect("user:secret@host").await.unwrap_err().kind(), ErrorKind::Unsupported);
}
