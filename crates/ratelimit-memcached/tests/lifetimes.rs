//! The lifetimes of items: longer than thirty days, at least as long as a window is relevant, and not evicted while in use.

mod common;

use std::time::Duration;

use common::{START, limiter, limits};
use ratelimit_core::{Clock, ManualClock, RateLimiter, Request, SystemClock, Timestamp};
use ratelimit_memcached::MemcachedStore;

/// Beyond thirty days a lifetime is a date; as an interval, or truncated, it would admit everyone again.
#[tokio::test]
async fn counters_of_long_periods_do_not_expire_early() {
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

/// Increments alone do not mark an item as used, so every claim also reads its counter.
#[tokio::test]
async fn counters_in_use_are_not_evicted() {
    let server = common::Server::start(&["-m", "2"]).await;
    let limiter = limiter(&server.store().await, "100000/h fixed");
    let mut used = 0;
    for round in 0..150 {
        for _ in 0..3 {
            used += 1;
            // Of the same size as the others, because items only displace others of their size.
            assert_eq!(limiter.check("in-use").await.unwrap().remaining(), 100_000 - used, "round {round}");
        }
        let names: Vec<String> = (0..1_000).map(|nth| format!("{:06}", round * 1_000 + nth)).collect();
        for answer in limiter.check_many(&names).await {
            answer.unwrap();
        }
    }
    assert!(server.stat("evictions") > 50_000, "{} evictions", server.stat("evictions"));
}

/// On the machine's clock and the server's: a lifetime that was taken for a date has ended by the second check.
#[tokio::test]
async fn periods_of_months_count_on_the_system_clock() {
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

/// If an item expired while it counts, its user would be admitted again; if a reset's mark did, so would running claims.
#[tokio::test]
async fn items_live_as_long_as_they_count_plus_the_slack() {
    const SLACK: u64 = 20;
    let server = common::Server::start(&[]).await;
    let config = server.config().clock_slack(Duration::from_secs(SLACK));
    let store = MemcachedStore::connect_with(config).await.unwrap();
    // The limit, the longest time that its items count, and how far ahead its counters may begin.
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
        // Items are listed by a crawler, which misses those that are being moved or locked.
        let least_left = || {
            (0..30).find_map(|_| {
                let keys = server.keys().into_iter();
                let least = keys.filter(|(key, _)| key.starts_with(&name)).map(|(_, life)| life).min();
                if least.is_none() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                least
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

/// Limits with different leases share one log: when the lease is changed, or differs between callers.
#[tokio::test]
async fn logs_live_for_the_longest_of_their_leases() {
    let server = common::Server::start(&[]).await;
    let stores = [
        server.store().await,
        #[cfg(feature = "memcache")]
        common::plain(&server.address()),
    ];
    for (nth, store) in stores.into_iter().enumerate() {
        for (long, days) in [("1d", 1), ("40d", 40)] {
            for way in ["charged", "released", "together"] {
                let key = format!("{way}-{nth}-{days}");
                let limiter = RateLimiter::without_limits(store.clone()).with_clock(ManualClock::at(START));
                let under = |lease| Request::new(&key).limits(limits(&[&format!("9 at once lease {lease}")]));
                let first = limiter.check(under("1min")).await.unwrap();
                assert!(limiter.check(under(long)).await.unwrap().allowed());
                match way {
                    "charged" => assert!(limiter.check(under("1min")).await.unwrap().allowed()),
                    "released" => limiter.release(&first).await.unwrap(),
                    _ => {
                        let both = limiter.check_many([under(long), under("1min")]).await;
                        assert!(both.into_iter().all(|answer| answer.unwrap().allowed()));
                    }
                }
                let name = format!("rl!!{}!{key}", limits(&["9 at once"])[0].scope());
                let reported = server.say(&format!("mg {name} t\r\nmn\r\n"), "MN").swap_remove(0);
                let left: u64 = reported.strip_prefix("HD t").expect(&reported).trim().parse().unwrap();
                let least = days * 86_400 - 60;
                assert!((least..least + 200).contains(&left), "{key}: lives {left} s");
            }
        }
    }
}

/// Servers count whole seconds, and let an item live up to one second less than its lifetime.
#[tokio::test]
async fn counters_of_short_windows_live_as_long_as_they_count() {
    let server = common::Server::start(&[]).await;
    let config = server.config().clock_slack(Duration::ZERO);
    let store = MemcachedStore::connect_with(config).await.unwrap();
    let now = || SystemClock::new().now();
    // Starts at every tenth of the server's second: the instant until which a counter is relevant, and its item.
    let mut ends: Vec<(Timestamp, String)> = Vec::new();
    for nth in 0..30_u64 {
        let period = [100, 300, 900, 1_000, 1_700][usize::try_from(nth % 5).unwrap()];
        let limits = limits(&[&format!("3 per {period}ms name n{nth}")]);
        let limiter = RateLimiter::new(store.clone(), limits.clone()).with_clock(ManualClock::at(now()));
        assert!(limiter.check(Request::new("k").cost(3)).await.unwrap().allowed());
        let index = limiter.clock().now().as_nanos() / (period * 1_000_000);
        // Both windows, plus a second for callers whose clock is behind.
        let end = Timestamp::from_nanos((index + 2) * period * 1_000_000) + Duration::from_secs(1);
        ends.push((end, format!("rl!!{}!k!{index}", limits[0].scope())));
        tokio::time::sleep(Duration::from_millis(110)).await;
    }
    ends.sort();
    for (end, item) in &ends {
        tokio::time::sleep(end.since(now()).saturating_sub(Duration::from_millis(60))).await;
        let there = server.value(item).is_some();
        // On a busy machine the check may be too late to be meaningful.
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
