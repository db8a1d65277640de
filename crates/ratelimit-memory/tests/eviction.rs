//! A full store: ever-new keys do not make it forget what refuses.

use std::time::Duration;

use ratelimit_memory::{Limits, ManualClock, MemoryConfig, MemoryStore, RateLimiter, Timestamp};

const BOUND: usize = 10_000;

/// New keys in each ten milliseconds.
const FLOOD: u64 = 100;

fn limiter(limits: &str, most: Option<usize>) -> RateLimiter<MemoryStore, ManualClock> {
    let store = MemoryStore::with_config(MemoryConfig::default().max_keys(most));
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    RateLimiter::new(store, limits.parse::<Limits>().unwrap()).with_clock(clock)
}

/// How many requests of a client with 100 a second are admitted in this many seconds, beside a flood of new keys.
fn admitted(limits: &str, seconds: u64, most: Option<usize>) -> u64 {
    let limiter = limiter(limits, most);
    let mut admitted = 0;
    for step in 0..seconds * 100 {
        admitted += u64::from(limiter.check_now("client").unwrap().allowed());
        for new in 0..if most.is_some() { FLOOD } else { 0 } {
            let new = (step * FLOOD + new).to_be_bytes();
            assert!(limiter.check_now(&[&b"new"[..], &new].concat()).unwrap().allowed());
        }
        limiter.clock().advance(Duration::from_millis(10));
    }
    assert!(most.is_none_or(|most| limiter.store().len() <= most));
    admitted
}

/// The margin: until a meter has used some of its limit, it may be evicted as the new ones are.
#[test]
fn a_flood_of_new_keys_does_not_give_a_client_more() {
    for (limits, seconds) in [
        ("10/s; 1000/d", 10),
        ("10/s", 4),
        ("10/s fixed", 4),
        ("10/s burst 10; 1000/d", 4),
        ("10/s log; 1000/d", 4),
        ("10/s precision 100ms; 1000/d", 4),
        ("1000/s; 100/d", 4),
        ("5/s; 100/d burst 20", 4),
        ("20/s; 100/h log", 4),
        ("5/min; 1000/30d", 4),
        ("50/s; 100 in total", 4),
    ] {
        let alone = admitted(limits, seconds, None);
        let flooded = admitted(limits, seconds, Some(BOUND));
        println!("{limits}: {flooded} beside a flood, {alone} without");
        assert!(
            flooded <= alone + alone / 4 + 5,
            "{limits}: {flooded} were admitted, {alone} without a flood"
        );
    }
}

#[test]
fn a_ban_lasts_through_a_flood_of_new_keys() {
    for limits in ["10/s; ban 1h after 3 in 10min", "3/min burst 3; 1000/d; ban 1h after 1 in 1min"] {
        let limiter = limiter(limits, Some(BOUND));
        // Enough for a ban.
        for _ in 0..40 {
            limiter.check_now("client").unwrap();
        }
        let mut number = 0_u64;
        for minute in 0..59 {
            limiter.clock().advance(Duration::from_secs(60));
            for _ in 0..1_000 {
                number += 1;
                assert!(limiter.check_now(&number.to_be_bytes()).unwrap().allowed());
            }
            assert!(!limiter.peek_now("client").unwrap().allowed(), "{limits}: it ended in minute {minute}");
        }
        limiter.clock().advance(Duration::from_secs(61));
        assert!(limiter.check_now("client").unwrap().allowed(), "{limits}");
    }
}
