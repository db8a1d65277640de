//! What a decision has charged as bytes, and units that are returned without a decision.

mod common;

use std::time::Duration;

use common::MapStore;
use futures::executor::block_on;
use proptest::prelude::*;
use ratelimit_core::{Decision, Limits, ManualClock, RateLimiter, Request, Timestamp};

const LIMITS: [&str; 9] = [
    "10/min",
    "10/min fixed",
    "10/h precision 10s strict",
    "10/min log",
    "10/min burst 10",
    "10/min leaky burst 10",
    "10 in total",
    "10 at once",
    "10/min; 50/day name day; ban 1h after 3 in 1min",
];

fn limiter(clock: &ManualClock, namespace: &str) -> RateLimiter<MapStore, ManualClock> {
    RateLimiter::without_limits(MapStore::default()).with_clock(clock.clone()).with_namespace(namespace)
}

fn left(limiter: &RateLimiter<MapStore, ManualClock>, key: &str, limits: &Limits) -> u64 {
    block_on(limiter.peek(Request::new(key).limits(limits))).unwrap().remaining()
}

#[test]
fn a_decision_that_was_read_back_gives_back_what_it_charged() {
    for text in LIMITS {
        let limits: Limits = text.parse().unwrap();
        let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
        let limiter = limiter(&clock, "näme");
        let request =
            Request::new("a").cost(3).limits(&limits).and(Request::new("b").cost(2).limits(&limits));
        let bytes = block_on(limiter.check(request)).unwrap().to_bytes().unwrap();
        clock.advance(Duration::from_millis(1));
        let decision = Decision::from_bytes(&bytes).unwrap();
        assert_eq!(decision.each().map(|status| status.cost()).max(), Some(3), "{text}");
        let before = (left(&limiter, "a", &limits), left(&limiter, "b", &limits));
        assert_eq!(before, (7, 8), "{text}");
        block_on(limiter.refund(&decision)).unwrap();
        assert_eq!((left(&limiter, "a", &limits), left(&limiter, "b", &limits)), (10, 10), "{text}");
        block_on(limiter.refund(&decision)).unwrap();
        assert_eq!(left(&limiter, "a", &limits), 10, "once only: {text}");
    }
}

#[test]
fn a_decision_that_was_read_back_is_settled() {
    let limits: Limits = "10/min; 100/h name hour".parse().unwrap();
    let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
    let limiter = limiter(&clock, "");
    let bytes =
        block_on(limiter.check(Request::new("a").cost(3).limits(&limits))).unwrap().to_bytes().unwrap();
    for (units, expected) in [(5, 5), (1, 9)] {
        let decision = Decision::from_bytes(&bytes).unwrap();
        block_on(limiter.settle(&decision, units)).unwrap();
        assert_eq!(left(&limiter, "a", &limits), expected);
        let back = block_on(limiter.charge(Request::new("a").cost(0).limits(&limits))).unwrap();
        assert!(back.to_bytes().is_some(), "a charge of nothing can be settled");
        // The units as they were.
        block_on(limiter.reset(Request::new("a").limits(&limits))).unwrap();
        block_on(limiter.charge(Request::new("a").cost(3).limits(&limits))).unwrap();
    }
}

#[test]
fn what_was_not_charged_has_no_bytes() {
    let limits: Limits = "1/min".parse().unwrap();
    let limiter = limiter(&ManualClock::at(Timestamp::from_secs(1_000_000)), "");
    let request = || Request::new("a").limits(&limits);
    assert!(block_on(limiter.peek(request())).unwrap().to_bytes().is_none());
    assert!(block_on(limiter.check(request())).unwrap().to_bytes().is_some());
    assert!(block_on(limiter.check(request())).unwrap().to_bytes().is_none());
}

#[cfg(feature = "calendar")]
#[test]
fn a_month_is_that_of_the_charge() {
    let limits: Limits = "10/month in Europe/Berlin".parse().unwrap();
    // 2026-01-31 22:59:59 UTC, a second before February in Berlin.
    let clock = ManualClock::at(Timestamp::from_secs(1_769_900_399));
    let limiter = limiter(&clock, "");
    let bytes =
        block_on(limiter.check(Request::new("a").cost(3).limits(&limits))).unwrap().to_bytes().unwrap();
    clock.advance(Duration::from_secs(2));
    block_on(limiter.check(Request::new("a").cost(4).limits(&limits))).unwrap();
    block_on(limiter.refund(&Decision::from_bytes(&bytes).unwrap())).unwrap();
    assert_eq!(left(&limiter, "a", &limits), 6, "February keeps its units");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, begin in 0..2_u8) {
        let bytes = if begin == 0 { bytes } else { [&[1][..], &bytes].concat() };
        let _ = Decision::from_bytes(&bytes);
    }

    #[test]
    fn changed_bytes_are_read_or_refused(place in 0..200_usize, byte: u8, cut in 0..200_usize) {
        let limits: Limits = LIMITS[8].parse().unwrap();
        let limiter = limiter(&ManualClock::at(Timestamp::from_secs(1_000_000)), "n");
        let mut bytes = block_on(limiter.check(Request::new("a").limits(&limits))).unwrap().to_bytes().unwrap();
        let length = bytes.len();
        bytes[place % length] = byte;
        if let Some(decision) = Decision::from_bytes(&bytes) {
            let _ = block_on(limiter.refund(&decision));
        }
        bytes.truncate(cut % length);
        prop_assert!(Decision::from_bytes(&bytes).is_none());
    }
}

#[test]
fn units_are_returned_without_a_decision() {
    for text in LIMITS {
        let limits: Limits = text.parse().unwrap();
        let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
        let limiter = limiter(&clock, "");
        let request = |cost| Request::new("a").cost(cost).limits(&limits);
        block_on(limiter.return_units(request(5))).unwrap();
        assert_eq!(left(&limiter, "a", &limits), 10, "there was nothing to return: {text}");
        block_on(limiter.check(request(4))).unwrap();
        clock.advance(Duration::from_millis(1));
        block_on(limiter.return_units(request(1))).unwrap();
        assert_eq!(left(&limiter, "a", &limits), 7, "{text}");
        block_on(limiter.return_units(request(u64::MAX))).unwrap();
        assert_eq!(left(&limiter, "a", &limits), 10, "{text}");
        // A later segment: the newest that has units is found.
        block_on(limiter.check(request(4))).unwrap();
        if text == "10/h precision 10s strict" {
            clock.advance(Duration::from_secs(25));
            block_on(limiter.return_units(request(1))).unwrap();
            assert_eq!(left(&limiter, "a", &limits), 7, "{text}");
        }
    }
}
