//! How many evicted meters still counted.

use std::time::Duration;

use ratelimit_memory::{
    Limits, ManualClock, MemoryConfig, MemoryStore, RateLimiter, Request, Timestamp, WhenFull,
};

const BOUND: usize = 64;

fn limiter(limits: &str, when_full: WhenFull) -> RateLimiter<MemoryStore, ManualClock> {
    let store = MemoryStore::with_config(MemoryConfig::default().max_keys(BOUND).when_full(when_full));
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    RateLimiter::new(store, limits.parse::<Limits>().unwrap()).with_clock(clock)
}

/// Checks this many keys, which nothing has checked before.
fn new_keys(limiter: &RateLimiter<MemoryStore, ManualClock>, prefix: &str, count: usize) {
    for number in 0..count {
        limiter.check_now(&*format!("{prefix}:{number}")).unwrap();
    }
}

#[test]
fn meters_that_count_are_counted_when_they_are_evicted() {
    for (limits, meters) in [("10/min", 1), ("10/min burst 10", 1), ("10/min log", 1), ("10/min; 100/h", 2)] {
        let limiter = limiter(limits, WhenFull::Evict);
        let keys = BOUND / meters;
        new_keys(&limiter, "first", keys);
        assert_eq!((limiter.store().len(), limiter.store().evicted()), (BOUND, 0), "{limits}");
        // Those known are charged without another one's eviction.
        new_keys(&limiter, "first", keys);
        assert_eq!(limiter.store().evicted(), 0, "{limits}");
        new_keys(&limiter, "second", keys / 2);
        assert_eq!(limiter.store().evicted(), (keys / 2 * meters) as u64, "{limits}");
        assert_eq!(limiter.store().len(), BOUND, "{limits}");
    }
}

#[test]
fn meters_whose_time_is_over_do_not_count_even_if_the_store_still_keeps_them() {
    // The store keeps them for another second, in case that a clock is behind.
    for (limits, over) in
        [("10/s fixed", 1), ("10/s", 2), ("10/s burst 10", 1), ("10/s log", 2), ("10/s fixed", 60)]
    {
        let limiter = limiter(limits, WhenFull::Evict);
        new_keys(&limiter, "first", BOUND);
        limiter.clock().advance(Duration::from_secs(over));
        new_keys(&limiter, "second", 10);
        assert!(limiter.store().len() <= BOUND);
        assert_eq!(limiter.store().evicted(), 0, "{limits} after {over} s");
    }
}

#[test]
fn empty_meters_do_not_count() {
    for limits in ["10/h", "10/h burst 10", "10/h log"] {
        let limiter = limiter(limits, WhenFull::Evict);
        for number in 0..BOUND {
            let decision = limiter.check_now(&*format!("first:{number}")).unwrap();
            limiter.refund_now(&decision);
        }
        new_keys(&limiter, "second", 10);
        assert_eq!(limiter.store().evicted(), 0, "{limits}");
    }
}

#[test]
fn a_store_that_refuses_new_keys_evicts_nothing() {
    let limiter = limiter("10/min", WhenFull::Refuse);
    new_keys(&limiter, "first", BOUND);
    assert!(limiter.check_now(Request::new("second")).is_err());
    assert_eq!(limiter.store().evicted(), 0);
}
