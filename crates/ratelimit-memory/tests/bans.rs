//! Bans by hand.

use std::time::Duration;

use ratelimit_memory::{
    CheckError, LimitError, Limits, ManualClock, MemoryStore, RateLimiter, Request, Timestamp,
};

const HOUR: Duration = Duration::from_secs(3_600);
const TICK: Duration = Duration::from_nanos(1);

fn limiter(text: &str) -> RateLimiter<MemoryStore, ManualClock> {
    let limits: Limits = text.parse().unwrap();
    RateLimiter::new(MemoryStore::new(), limits)
        .with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000)))
}

#[test]
fn a_ban_by_hand_lasts_as_long_as_it_says() {
    for text in ["100/min; ban 1h after 3 in 10min", "ban 1h after 3 in 10min growing 2 up to 1day"] {
        let limiter = limiter(text);
        let wait = |key| limiter.check_now(key).unwrap().retry_after();
        limiter.ban_now(Request::new("a").and("b"), 5 * HOUR).unwrap();
        for key in ["a", "b"] {
            assert_eq!(wait(key), Some(5 * HOUR), "{text}");
        }
        assert!(limiter.check_now("c").unwrap().allowed());
        // A shorter one changes nothing, a longer one lasts as long as it says.
        limiter.ban_now("b", HOUR).unwrap();
        assert_eq!(wait("b"), Some(5 * HOUR));
        limiter.clock().advance(HOUR);
        limiter.ban_now("b", 6 * HOUR).unwrap();
        let longer = wait("b").unwrap();
        assert!((6 * HOUR..=6 * HOUR + Duration::from_micros(1)).contains(&longer), "{longer:?}");
        limiter.clock().advance(4 * HOUR - TICK);
        assert_eq!(wait("a"), Some(TICK));
        limiter.clock().advance(TICK);
        assert_eq!(wait("a"), Some(Duration::ZERO));
        limiter.reset_now("b").unwrap();
        assert!(limiter.check_now("b").unwrap().allowed());
    }
}

#[test]
fn what_cannot_be_banned_is_an_error() {
    let without = limiter("100/min");
    let error = without.ban_now("k", HOUR).unwrap_err();
    assert!(matches!(error, CheckError::Limits(LimitError::NoBan)), "{error}");
    let limiter = limiter("ban 1h after 3 in 10min");
    for length in [Duration::ZERO, 367 * 24 * HOUR, Duration::MAX] {
        assert!(matches!(limiter.ban_now("k", length), Err(CheckError::Limits(_))));
    }
    assert!(limiter.check_now("k").unwrap().allowed());
}
