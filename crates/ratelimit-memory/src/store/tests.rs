//! What the store shows without its locks.

use ratelimit_core::{Limit, ManualClock, RateLimiter};

use super::*;

fn limiter(limit: &str) -> RateLimiter<MemoryStore, ManualClock> {
    let limit: Limit = limit.parse().unwrap();
    RateLimiter::new(MemoryStore::new(), limit).with_clock(ManualClock::at(Timestamp::from_secs(1_000)))
}

#[test]
fn repeated_refusals_take_no_lock() {
    for limit in ["1/min fixed", "1/min", "1/min burst 1"] {
        let limiter = limiter(limit);
        assert!(limiter.check_now("k").unwrap().allowed());
        let [first, _] = [(); 2].map(|()| limiter.check_now("k").unwrap());
        let shards = &limiter.store().shards;
        let held: Vec<ShardGuard<'_>> = (0..shards.count()).map(|number| shards.lock(number)).collect();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(send.send(limiter.check_now("k").unwrap()).is_ok()));
            let again = receive.recv_timeout(std::time::Duration::from_secs(10));
            drop(held); // or the other thread would never end
            let again = again.expect("it waits for a lock");
            assert_eq!((again.allowed(), again), (false, first), "{limit}");
        });
    }
}

#[test]
fn refunds_resets_time_and_evictions_end_a_cached_refusal() {
    let limiter = limiter("2/min burst 2");
    let charged = limiter.check_now("k").unwrap();
    let refused = |limiter: &RateLimiter<MemoryStore, ManualClock>| {
        assert!(limiter.check_now("k").unwrap().allowed());
        let refused = limiter.check_now("k").unwrap();
        assert!(!refused.allowed() && !limiter.check_now("k").unwrap().allowed());
        refused.retry_after().unwrap()
    };
    refused(&limiter);
    limiter.refund_now(&charged);
    let wait = refused(&limiter);
    limiter.clock().advance(wait - std::time::Duration::from_nanos(1));
    assert!(!limiter.check_now("k").unwrap().allowed());
    limiter.clock().advance(std::time::Duration::from_nanos(1));
    refused(&limiter);
    // A removed meter starts anew, even if it was the last one that refused.
    limiter.reset_now("k").unwrap();
    assert!(limiter.check_now("k").unwrap().allowed());
    refused(&limiter);
    let store = MemoryStore::with_config(MemoryConfig::default().max_keys(1));
    let bounded = RateLimiter::new(store, "1/min burst 1".parse::<Limit>().unwrap());
    for (key, allowed) in [("one", "+---"), ("other", "+"), ("one", "+---"), ("other", "+---"), ("one", "+-")]
    {
        for mark in allowed.chars() {
            assert_eq!(bounded.check_now(key).unwrap().allowed(), mark == '+', "{key}");
        }
    }
}
