//! How long items live: longer than thirty days, no less than a window matters, and not until memory runs short.

mod common;

use std::time::Duration;

use common::{limiter, limits};
use ratelimit_core::{Clock, ManualClock, RateLimiter, Request, SystemClock, Timestamp};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};

/// Beyond thirty days a lifetime is a date; read as an interval, or cut short, it would let everybody in again.
#[tokio::test]
async fn long_periods_are_kept() {
    let server = common::Server::start(&[]).await;
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

/// Additions alone do not mark an item as used; every claim therefore also reads its counter.
#[tokio::test]
async fn counters_in_use_are_not_evicted() {
    let server = common::Server::start(&["-m", "2"]).await;
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

/// The machine's clock and the server's: a lifetime that was read as a date has ended by the time of the second look.
#[tokio::test]
async fn months_are_counted_on_the_machines_clock() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    let texts = [
        "5 per 31 days fixed",
        "5 per 30 days",
        "2 per 31 days",
        "2 per 45 days burst 2",
        "5 per 60 days log",
    ];
    for text in texts {
        let limiter = RateLimiter::new(store.clone(), limits(&[text]));
        let most = limiter.limits()[0].meter_for(b"k").limit();
        assert!(limiter.check(Request::new(text).cost(most)).await.unwrap().allowed(), "{text}");
    }
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    for text in texts {
        let limiter = RateLimiter::new(store.clone(), limits(&[text]));
        let most = limiter.limits()[0].meter_for(b"k").limit();
        let refused = limiter.check(Request::new(text).cost(most)).await.unwrap();
        assert!(!refused.allowed(), "{text}: {refused:?}");
    }
}

/// An item that has gone while it counts would let its user in again; the mark of a reset, those who were on their way.
#[tokio::test]
async fn items_live_for_as_long_as_they_count_and_the_slack() {
    const SLACK: u64 = 20;
    let server = common::Server::start(&[]).await;
    let config = MemcachedConfig { clock_slack: Duration::from_secs(SLACK), ..server.config() };
    let store = MemcachedStore::connect_with(config).await.unwrap();
    // The limit, the longest that its items count, and how long beyond that its counters may be begun.
    for (text, longest, ahead) in [
        ("9/min", 120, 60),
        ("9/min fixed", 60, 60),
        ("9/min strict precision 1min", 120, 60),
        ("9/min precision 10s", 70, 10),
        ("6/min burst 9", 90, 0),
        ("9/min log", 60, 0),
    ] {
        let limiter = limiter(&store, text);
        let name = format!("rl!!{}!k", limiter.limits()[0].scope());
        // Its items are listed by a walk, which misses one that is moved on the way.
        let least_left = || {
            (0..10).find_map(|_| {
                let keys = server.keys().into_iter();
                keys.filter(|(key, _)| key.starts_with(&name)).map(|(_, life)| life).min()
            })
        };
        for _ in 0..3 {
            let charged = limiter.check("k").await.unwrap();
            let (counts, left) = (charged.reset_after().as_secs(), least_left().unwrap());
            // The test may be two seconds late; servers count whole seconds, and there is one to spare.
            assert!(
                left + 2 >= counts + SLACK && left <= longest + SLACK + 3,
                "{text}: lives {left} s, counts for {counts} s"
            );
        }
        limiter.reset("k").await.unwrap();
        if let Some(left) = least_left() {
            assert!(left + 2 >= longest + ahead + SLACK, "{text}: the mark of a reset lives {left} s");
        }
        assert_eq!(least_left().is_some(), ahead > 0, "{text}");
    }
}

/// Servers count whole seconds, and let an item live up to one of them less than they were told.
#[tokio::test]
async fn short_windows_live_as_long_as_they_matter() {
    let server = common::Server::start(&[]).await;
    let config = MemcachedConfig { clock_slack: Duration::ZERO, ..server.config() };
    let store = MemcachedStore::connect_with(config).await.unwrap();
    let now = || SystemClock::new().now();
    // Begun at every tenth of the server's second: when a counter matters no longer, its limit, and its item.
    let mut ends: Vec<(Timestamp, String)> = Vec::new();
    for nth in 0..30_u64 {
        let period = [100, 300, 900, 1_000, 1_700][usize::try_from(nth % 5).unwrap()];
        let own = limits(&[&format!("3 per {period}ms name n{nth}")]);
        let limiter = RateLimiter::new(store.clone(), own.clone()).with_clock(ManualClock::at(now()));
        assert!(limiter.check(Request::new("k").cost(3)).await.unwrap().allowed());
        let index = limiter.clock().now().as_nanos() / (period * 1_000_000);
        // Both windows, and a second for callers whose clock is behind.
        let end = Timestamp::from_nanos((index + 2) * period * 1_000_000) + Duration::from_secs(1);
        ends.push((end, format!("rl!!{}!k!{index}", own[0].scope())));
        tokio::time::sleep(Duration::from_millis(110)).await;
    }
    ends.sort();
    for (end, item) in &ends {
        tokio::time::sleep(end.since(now()).saturating_sub(Duration::from_millis(60))).await;
        let there = server.value(item).is_some();
        // A machine that was busy with something else has come too late to tell.
        assert!(there || now() >= *end, "{item} has gone before {end:?}");
    }
    for _ in 0..300 {
        if server.keys().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("these live on: {:?}", server.keys());
}
