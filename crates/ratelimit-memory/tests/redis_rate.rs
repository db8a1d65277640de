//! The figures of the tests of Go's `redis_rate` (rate_test.go, v10), replayed: `PerSecond(10)` is `10/s bucket`, `AllowN` is a check
//! with a cost, `AllowAtMost` is `take_up_to`. Their clock runs, so they compare within 10 ms; here it stands still.

use std::time::Duration;

use ratelimit_core::{Decision, Limit, ManualClock, RateLimiter, Request, Timestamp};
use ratelimit_memory::MemoryStore;

type Limiter = RateLimiter<MemoryStore, ManualClock>;

/// Allowed, remaining, milliseconds until a retry and until it is full. They retry after -1 if it was allowed; here after zero.
type Figures = (u64, u64, Option<u64>, u64);

fn limiter(limit: &str) -> Limiter {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    RateLimiter::new(MemoryStore::new(), limit.parse::<Limit>().unwrap()).with_clock(clock)
}

fn figures(allowed: u64, decision: &Decision<'_>) -> Figures {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap();
    (allowed, decision.remaining(), decision.retry_after().map(millis), millis(decision.reset_after()))
}

fn allow(limiter: &Limiter, units: u64) -> Figures {
    let decision = limiter.check_now(Request::new("test_id").cost(units)).unwrap();
    figures(if decision.allowed() { units } else { 0 }, &decision)
}

fn allow_at_most(limiter: &Limiter, units: u64) -> Figures {
    let decision = limiter.take_up_to_now(Request::new("test_id").cost(units)).unwrap();
    figures(decision.granted(), &decision)
}

#[test]
fn test_allow() {
    let limiter = limiter("10/s bucket");
    assert_eq!(allow(&limiter, 1), (1, 9, Some(0), 100));
    limiter.reset_now("test_id").unwrap();
    assert_eq!(allow(&limiter, 1), (1, 9, Some(0), 100));
    assert_eq!(allow(&limiter, 2), (2, 7, Some(0), 300));
    assert_eq!(allow(&limiter, 7), (7, 0, Some(0), 1_000));
    // They retry a thousand of ten after 99 s; they will not fit then either.
    assert_eq!(allow(&limiter, 1_000), (0, 0, None, 1_000));
}

#[test]
fn test_allow_n_and_at_most_increment_zero() {
    for allow in [allow, allow_at_most] {
        let limiter = limiter("10/s bucket");
        assert_eq!(allow(&limiter, 0), (0, 10, Some(0), 0));
        assert_eq!(allow(&limiter, 1), (1, 9, Some(0), 100));
        assert_eq!(allow(&limiter, 0), (0, 9, Some(0), 100));
    }
}

#[test]
fn test_retry_after() {
    let limiter = limiter("1/ms burst 1");
    assert_eq!(allow(&limiter, 1).0, 1);
    for micros in 0..1_000 {
        let decision = limiter.would_allow_now("test_id").unwrap();
        assert_eq!(decision.retry_after(), Some(Duration::from_micros(1_000 - micros)));
        limiter.clock().advance(Duration::from_micros(1));
    }
    assert_eq!(allow(&limiter, 1).0, 1);
}

#[test]
fn test_allow_at_most() {
    let limiter = limiter("10/s bucket");
    assert_eq!(allow(&limiter, 1), (1, 9, Some(0), 100));
    assert_eq!(allow_at_most(&limiter, 2), (2, 7, Some(0), 300));
    assert_eq!(allow(&limiter, 0), (0, 7, Some(0), 300));
    assert_eq!(allow_at_most(&limiter, 10), (7, 0, Some(0), 1_000));
    assert_eq!(allow(&limiter, 0), (0, 0, Some(0), 1_000));
    assert_eq!(allow_at_most(&limiter, 1_000), (0, 0, Some(100), 1_000));
    assert_eq!(allow(&limiter, 1_000), (0, 0, None, 1_000));
}
