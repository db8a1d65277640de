//! What one check has taken is given back once, whichever calls give it back, in whichever order, on a decision or its clones.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use ratelimit_memory::{Decision, Limits, ManualClock, MemoryStore, RateLimiter, Request, Timestamp};

type Limiter = RateLimiter<MemoryStore, ManualClock>;

const HELD: &str = "9 at once lease 1h";
/// Units that do not leave while a test lasts.
const COUNTED: [&str; 4] = ["1000/h fixed", "1000/h log", "1000 in total", "1000/h"];
/// Units that drain while a test lasts.
const DRAINING: [&str; 3] = ["60/min burst 1000", "60/min queue burst 1000", "600/10s burst 1000 step 10s"];
const COST: u64 = 5;

/// What a caller does with a decision.
#[derive(Clone, Copy, Debug)]
enum Call {
    Refund,
    Settle(u64),
    Release,
    Renew,
}

const CALLS: [Call; 6] =
    [Call::Refund, Call::Settle(0), Call::Settle(3), Call::Settle(8), Call::Release, Call::Renew];

/// Units of one check that are still counted: those that it holds, and those under the other limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Model {
    held: u64,
    counted: u64,
}

impl Model {
    fn after(self, call: Call) -> Self {
        match call {
            Call::Refund | Call::Settle(0) => Self { held: 0, counted: 0 },
            Call::Settle(units) => Self { counted: units, ..self },
            Call::Release => Self { held: 0, ..self },
            Call::Renew => self,
        }
    }
}

fn limiter(text: &str) -> Limiter {
    let limits: Limits = format!("{HELD}; {text}").parse().unwrap();
    RateLimiter::new(MemoryStore::new(), limits)
        .with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000)))
}

fn left(limiter: &Limiter) -> [u64; 2] {
    left_to(limiter, "k")
}

fn left_to(limiter: &Limiter, key: &str) -> [u64; 2] {
    let left: Vec<u64> = limiter.peek_now(key).unwrap().each().map(|limit| limit.remaining()).collect();
    [left[0], left[1]]
}

/// Makes the calls one after another, each on a handle of the same decision and after a pause, while another holder is at
/// work, and compares what is left with a key of which only the other holder knows.
fn compare(limiter: &Limiter, text: &str, calls: &[(Call, usize, Duration)]) {
    let [key, twin] = ["key", "twin"].map(|key| format!("{key} {calls:?}"));
    let decision = limiter.check_now(Request::new(&key).cost(COST)).unwrap();
    for key in [&key, &twin] {
        assert!(limiter.check_now(key).unwrap().allowed());
    }
    let owned = decision.clone().into_owned();
    let handles = [decision.clone(), decision, owned];
    let mut model = Model { held: COST, counted: COST };
    for (nth, &(call, handle, pause)) in calls.iter().enumerate() {
        limiter.clock().advance(pause);
        let handle = &handles[handle];
        match call {
            Call::Refund => limiter.refund_now(handle),
            Call::Settle(units) => limiter.settle_now(handle, units).unwrap(),
            Call::Release => limiter.release_now(handle),
            Call::Renew => {
                assert_eq!(limiter.renew_now(handle).unwrap(), model.held > 0, "{text}: {calls:?}");
            }
        }
        model = model.after(call);
        let (found, others) = (left_to(limiter, &key), left_to(limiter, &twin));
        let expected = [others[0] - model.held, others[1] - model.counted];
        let context = format!("{text}: {found:?} left after {nth} of {calls:?}");
        assert_eq!(found[0], expected[0], "{context}");
        let is_waiting = text.contains("queue");
        if COUNTED.contains(&text) || !is_waiting && calls[..=nth].iter().all(|(_, _, pause)| pause.is_zero())
        {
            assert_eq!(found[1], expected[1], "{context}");
        } else {
            // What has drained is not given back, nor are turns that others wait behind.
            assert!(found[1] <= others[1], "{context}");
        }
        // A third takes what the other holder may not lose.
        let taken = limiter.check_now(Request::new(&key).cost(found[0])).unwrap();
        assert!(taken.allowed() && !limiter.check_now(&key).unwrap().allowed(), "{context}");
        limiter.refund_now(&taken);
        assert_eq!(left_to(limiter, &key)[0], found[0], "{context}");
    }
}

const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_secs(2)];

#[test]
fn any_two_calls_on_any_two_handles() {
    for text in COUNTED.iter().chain(&DRAINING) {
        let limiter = limiter(text);
        for (first, second) in CALLS.iter().flat_map(|first| CALLS.map(|second| (*first, second))) {
            for (one, two) in (0..3).flat_map(|one| (0..3).map(move |two| (one, two))) {
                for pauses in PAUSES.iter().flat_map(|one| PAUSES.map(|two| [*one, two])) {
                    compare(&limiter, text, &[(first, one, pauses[0]), (second, two, pauses[1])]);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_calls(
        text in proptest::sample::select([&COUNTED[..], &DRAINING[..]].concat()),
        calls in proptest::collection::vec(
            (proptest::sample::select(&CALLS[..]), 0..3_usize, proptest::sample::select(&PAUSES[..])),
            3..8,
        ),
    ) {
        compare(&limiter(text), text, &calls);
    }
}

/// The other holder was charged at the same instant, so the store cannot tell its units from those of the first.
#[test]
fn a_settlement_and_a_release_free_one_unit() {
    let limits: Limits = "2 at once; 1000/h".parse().unwrap();
    let limiter = RateLimiter::new(MemoryStore::new(), limits)
        .with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let (first, second) = (limiter.check_now("k").unwrap(), limiter.check_now("k").unwrap());
    limiter.settle_now(&first, 0).unwrap();
    limiter.release_now(&first);
    assert_eq!(left(&limiter), [1, 999]);
    limiter.release_now(&second);
    limiter.release_now(&second.clone());
    assert_eq!(left(&limiter), [2, 999]);
}

/// The part of a charge that is still in a bucket ends where the part that was given back began.
#[test]
fn what_is_left_of_a_charge_drains_before_it_is_given_back() {
    let limits: Limits = "60/min burst 100".parse().unwrap();
    let limiter = RateLimiter::new(MemoryStore::new(), limits)
        .with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let remaining = || limiter.peek_now("k").unwrap().remaining();
    let first = limiter.check_now(Request::new("k").cost(10)).unwrap();
    limiter.settle_now(&first, 4).unwrap();
    limiter.clock().advance(Duration::from_secs(4));
    assert_eq!(remaining(), 100);
    assert!(limiter.check_now(Request::new("k").cost(4)).unwrap().allowed());
    limiter.refund_now(&first);
    assert_eq!(remaining(), 96, "the four of another are still there");
}

#[test]
fn of_concurrent_calls_one_gives_back() {
    const THREADS: usize = 8;
    for round in 0..200 {
        let limiter = limiter("1000/h");
        let decision = limiter.check_now("k").unwrap();
        for _ in 1..THREADS {
            assert!(limiter.check_now("k").unwrap().allowed());
        }
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (limiter, barrier, shared) = (&limiter, &barrier, &decision);
                // The first give-back and the first clone may come at the same time.
                scope.spawn(move || {
                    barrier.wait();
                    let clone: Decision<'_> = shared.clone();
                    match (number + round) % 4 {
                        0 => limiter.refund_now(shared),
                        1 => limiter.settle_now(&clone, 0).unwrap(),
                        2 => limiter.release_now(&clone.into_owned()),
                        _ => drop(limiter.renew_now(&clone).unwrap()),
                    }
                });
            }
        });
        assert_eq!(left(&limiter), [9 - THREADS as u64 + 1, 1_000 - THREADS as u64 + 1], "round {round}");
    }
}
