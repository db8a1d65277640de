//! The figures of Bucket4j's tests (bucket4j-core/src/test/java/io/github/bucket4j, 8.19), replayed: a bandwidth is a token bucket,
//! `refillIntervally` a window from the first request or a bucket with a step, `initialTokens(n)` a charge of what is missing,
//! `consumeIgnoringRateLimits` is `charge`. Instants are in nanoseconds, as there.
//!
//! Not replayed, because there is nothing like it: `addTokens` beyond what was charged, `refillIntervallyAligned` at any instant
//! (windows begin at multiples of their length, or with `offset`), listeners, and the inheritance of tokens when the configuration
//! is replaced (here what was charged stays charged).

use std::time::Duration;

use ratelimit_core::{Decision, Limits, ManualClock, RateLimiter, Request, Timestamp};
use ratelimit_memory::MemoryStore;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// `Long.MAX_VALUE`.
const NEVER: u64 = i64::MAX as u64;

struct Bucket(RateLimiter<MemoryStore, ManualClock>);

impl Bucket {
    /// A bucket under these limits, with so many tokens at the start.
    fn new(limits: &str, initial: u64) -> Self {
        let limits: Limits = limits.parse().unwrap();
        let missing = limits[0].burst() - initial;
        let bucket = Self(RateLimiter::new(MemoryStore::new(), limits).with_clock(ManualClock::at(START)));
        bucket.0.charge_now(Request::new("k").cost(missing)).unwrap();
        bucket
    }

    fn at(&self, nanos: u64) -> &Self {
        self.0.clock().set(START + Duration::from_nanos(nanos));
        self
    }

    fn available(&self) -> u64 {
        self.0.peek_now("k").unwrap().each().map(|limit| limit.remaining()).min().unwrap()
    }

    fn consumes(&self, tokens: u64) -> bool {
        self.0.check_now(Request::new("k").cost(tokens)).unwrap().allowed()
    }

    /// `ConsumptionProbe`: consumed, remaining tokens, nanoseconds to wait.
    fn probe(&self, tokens: u64) -> (bool, u64, u64) {
        probe(&self.0.check_now(Request::new("k").cost(tokens)).unwrap())
    }
}

fn probe(decision: &Decision<'_>) -> (bool, u64, u64) {
    let wait = decision.retry_after().map_or(NEVER, |wait| u64::try_from(wait.as_nanos()).unwrap());
    (decision.allowed(), decision.remaining(), wait)
}

/// integer/BucketStateSpecification: "Specification for refill simple bandwidth", and "classic".
#[test]
fn refill() {
    for (limit, initial, after, tokens) in [
        ("1000/1000ns bucket", 0, 40, 40),
        ("1000/1000ns bucket", 50, 1, 51),
        ("1000/1000ns bucket", 55, 0, 55),
        ("1000/1000ns bucket", 200, 10_000, 1_000),
        ("100/1000ns bucket", 0, 3, 0),
        ("100/1000ns bucket", 90, 17, 91),
        ("100/1000ns bucket", 0, 18_888, 100),
        ("1/1ns burst 1000", 0, 40, 40),
        ("10/10ns burst 1000", 50, 1, 51),
        ("10/10ns burst 1000", 200, 10_000, 1_000),
    ] {
        assert_eq!(
            Bucket::new(limit, initial).at(after).available(),
            tokens,
            "{initial} of {limit} after {after}"
        );
    }
}

/// integer/BucketStateSpecification: "delayAfterWillBePossibleToConsume specification", 1 to 5, and "calculateFullRefillingTime
/// specification", 1, 3 and 5.
#[test]
fn times_until_tokens_are_there() {
    for (limit, initial, tokens, wait) in [
        ("10/100ns bucket", 0, 10, 100),
        ("2/100ns burst 10", 0, 10, 500),
        ("10/100ns bucket", 4, 7, 30),
        // More than the capacity: they say 70, as if the bucket could be fuller than that (their probes say `MAX_VALUE`).
        ("10/100ns bucket", 4, 11, NEVER),
    ] {
        assert_eq!(Bucket::new(limit, initial).probe(tokens).2, wait, "{tokens} of {limit} with {initial}");
    }
    for (limit, initial, consumed, full) in
        [("10/100ns bucket", 1, 0, 90), ("2/100ns burst 10", 0, 23, 1_650), ("10/100ns bucket", 4, 0, 60)]
    {
        let bucket = Bucket::new(limit, initial);
        let charged = bucket.0.charge_now(Request::new("k").cost(consumed)).unwrap();
        assert_eq!(charged.reset_after(), Duration::from_nanos(full), "{limit}");
    }
}

/// TryConsumeAndReturnRemainingSpecification, and EstimateAbilityToConsumeSpecification with the same figures.
#[test]
fn probes() {
    for (tokens, consumed, remaining, wait, limit, initial) in [
        (49, true, 51, 0, "100/100ns bucket", 100),
        (1, true, 0, 0, "100/100ns bucket", 1),
        (80, false, 70, 10, "100/100ns bucket", 70),
        (10, false, 0, 10, "100/100ns bucket", 0),
        (120, false, 10, NEVER, "100/100ns bucket", 10),
        (80, false, 70, 100, "100/100ns burst 100 step 100ns", 70),
        (10, false, 0, 100, "100/100ns burst 100 step 100ns", 0),
        (120, false, 10, NEVER, "100/100ns burst 100 step 100ns", 10),
    ] {
        let bucket = Bucket::new(limit, initial);
        let estimate = bucket.0.would_allow_now(Request::new("k").cost(tokens)).unwrap();
        assert_eq!((estimate.allowed(), estimate.remaining()), (consumed, initial), "{tokens} of {limit}");
        assert_eq!(bucket.probe(tokens), (consumed, remaining, wait), "{tokens} of {limit} with {initial}");
    }
}

/// BucketRoundingRulesSpecification: "rest of division should not be missed on next consumption", "Partially refilled token should not
/// be missed when calculating time for refill".
#[test]
fn rounding() {
    let bucket = Bucket::new("10/100ns bucket", 0);
    bucket.at(97);
    assert!(bucket.consumes(9) && !bucket.consumes(1));
    bucket.at(100);
    assert!(bucket.consumes(1) && !bucket.consumes(1));

    let bucket = Bucket::new("1/s burst 4", 1);
    assert_eq!(bucket.0.take_up_to_now(Request::new("k").cost(4)).unwrap().granted(), 1);
    bucket.at(200_000_000);
    assert_eq!([1, 3].map(|tokens| bucket.probe(tokens).2), [800_000_000, 2_800_000_000]);
}

/// FixedIntervalRefillSpecification: "Basic test of fixed interval refill", "Complex test", "Test for refill time estimation".
#[test]
fn fixed_intervals() {
    // Theirs are nine in 10 ns, and five in 6 ns beside four in 5 ns; here a token takes whole nanoseconds.
    let bucket = Bucket::new("9/9us from first request", 0);
    assert_eq!([0, 4, 9, 10].map(|micros| bucket.at(micros * 1_000).available()), [0, 0, 9, 9]);

    let bucket = Bucket::new("5/60us burst 9 step 60us name one; 4/50us burst 9 step 50us name two", 0);
    let at = [0, 40, 50, 60, 100, 120, 150].map(|micros| bucket.at(micros * 1_000).available());
    assert_eq!(at, [0, 0, 0, 4, 5, 8, 9]);

    let bucket = Bucket::new("10/min from first request", 0);
    let second = 1_000_000_000;
    assert_eq!([1, 10].map(|tokens| bucket.probe(tokens)), [(false, 0, 60 * second); 2]);
    bucket.at(15 * second);
    assert_eq!(bucket.probe(1), (false, 0, 45 * second));
    assert_eq!(bucket.probe(15), (false, 0, NEVER));
}

/// ConsumeAsMuchAsPossibleSpecification.
#[test]
fn as_much_as_possible() {
    for (taken, limit, initial) in [(0, 10, 0), (2, 10, 2), (4, 5, 4), (5, 5, 5)] {
        let bucket = Bucket::new("10/100min bucket", initial);
        assert_eq!(bucket.0.take_up_to_now(Request::new("k").cost(limit)).unwrap().granted(), taken);
    }
}

/// ConsumeIgnoringLimitsSpecification: "case when limits are not overflown".
#[test]
fn ignoring_limits() {
    for (tokens, after, remaining) in [(49, 50, 1), (50, 50, 0), (51, 120, 49), (100, 101, 0)] {
        let bucket = Bucket::new("100/100ns bucket", 0);
        bucket.at(after).0.charge_now(Request::new("k").cost(tokens)).unwrap();
        assert_eq!(bucket.available(), remaining);
    }
}

/// BlockingTryConsumeSpecification, on a queue of which the capacity is immediate. A thousand of ten tokens wait 9,990 ns there,
/// because a bucket may be in debt; here the burst of the queue says how far.
#[test]
fn blocking() {
    for (initial, tokens, sleep) in [(0, 1, 10), (1, 1, 0)] {
        let bucket = Bucket::new("10/100ns queue burst 10000 immediate 10", 10_000 - (10 - initial));
        let turn = bucket.0.reserve_now(Request::new("k").cost(tokens), Duration::from_secs(3_600)).unwrap();
        assert_eq!((turn.allowed(), turn.delay()), (true, Duration::from_nanos(sleep)));
    }
    let bucket = Bucket::new("10/100ns queue burst 10000 immediate 10", 9_990);
    let late = bucket.0.reserve_now(Request::new("k").cost(10), Duration::from_nanos(99)).unwrap();
    assert_eq!((late.allowed(), late.retry_after()), (false, Some(Duration::from_nanos(10))));
}
