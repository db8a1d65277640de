//! Concurrency limits without waiting: released, renewed, and lost when the lease has ended.

use std::time::Duration;

use ratelimit_memory::{Limit, Limits, ManualClock, MemoryStore, RateLimiter, Timestamp};

#[test]
fn leases_are_released_and_renewed_without_waiting() {
    let limit: Limit = "2 at once lease 1min".parse().unwrap();
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let limiter = RateLimiter::new(MemoryStore::new(), limit).with_clock(clock.clone());
    let left = || limiter.peek_now("k").unwrap().remaining();
    let (first, second) = (limiter.check_now("k").unwrap(), limiter.check_now("k").unwrap());
    assert!(!limiter.check_now("k").unwrap().allowed());
    limiter.release_now(&first);
    assert_eq!(left(), 1);
    clock.advance(Duration::from_secs(50));
    assert!(limiter.renew_now(&second).unwrap());
    assert_eq!(left(), 1);
    clock.advance(Duration::from_secs(50)); // beyond the first lease
    assert_eq!(left(), 1);
    clock.advance(Duration::from_secs(11));
    assert!(!limiter.renew_now(&second).unwrap());
    assert_eq!(left(), 2);
}

#[test]
fn the_true_cost_of_a_request_leaves_what_it_holds() {
    let limits: Limits = "10 at once; 1000/h".parse().unwrap();
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let limiter = RateLimiter::new(MemoryStore::new(), limits).with_clock(clock);
    let left = || limiter.peek_now("k").unwrap().each().map(|limit| limit.remaining()).collect::<Vec<_>>();
    let decision = limiter.check_now("k").unwrap();
    limiter.settle_now(&decision, 300).unwrap();
    assert_eq!(left(), [9, 700]);
    limiter.release_now(&decision);
    assert_eq!(left(), [10, 700]);
    let refunded = limiter.check_now("k").unwrap();
    limiter.refund_now(&refunded);
    assert_eq!(left(), [10, 700]);
}
