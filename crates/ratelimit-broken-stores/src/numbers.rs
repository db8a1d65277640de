//! Stores with numbers that are too small, or not integers.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{MAX_UNITS, Meter, State, Window, decide, refund};
use ratelimit_core::store::{Answer, Claims, Mode, Refund};

/// Changes the counts of a window.
fn counts(state: State, kept: impl Fn(u64) -> u64) -> State {
    match state {
        State::Window(mut window) => {
            window.counts.iter_mut().for_each(|count| *count = kept(*count));
            State::Window(window)
        }
        other => other,
    }
}

/// The same meter, without a limit if its limit is zero.
fn unlimited(meter: Meter) -> Meter {
    match meter {
        Meter::Window(window) if window.limit() == 0 => {
            let (segment, carried) = (window.segment(), window.carried());
            Window::new(MAX_UNITS, segment, carried, window.strict(), window.offset())
                .map_or(meter, Meter::Window)
        }
        _ => meter,
    }
}

flaws! {
    ZeroIsUnlimited "zero-is-unlimited": "a quota of zero is taken for no limit", "numbers/quota-of-zero" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let mut without = claims.to_vec();
            without.iter_mut().for_each(|claim| claim.meter = unlimited(claim.meter));
            decide(&Claims::new(claims.now(), claims.mode(), &without).unwrap_or(*claims), states)
        }
    }
    ThirtyTwoBits "counts-in-32-bits": "counts are kept in 32 bits", "numbers/largest-quota" {
        fn kept(&self, state: State) -> State {
            counts(state, |count| count % (1 << 32))
        }
    }
    Signed "counts-in-31-bits": "counts end at the largest number of 31 bits", "numbers/largest-quota" {
        fn kept(&self, state: State) -> State {
            counts(state, |count| count.min((1 << 31) - 1))
        }
    }
    Floats "counts-in-floats": "counts are kept in floating point of 32 bits", "numbers/largest-quota" {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        fn kept(&self, state: State) -> State {
            counts(state, |count| count as f32 as u64)
        }
    }
    SignedCosts "signed-costs": "costs are signed numbers, and a negative one charges nothing",
        "numbers/forced-beyond-everything" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let mut signed = claims.to_vec();
            signed.iter_mut().for_each(|claim| claim.cost = i64::try_from(claim.cost).unwrap_or(0).unsigned_abs());
            decide(&Claims::new(claims.now(), claims.mode(), &signed).unwrap_or(*claims), states)
        }
    }
    SignedRefunds "signed-refunds": "refunds are signed numbers, and a negative one gives nothing back",
        "numbers/forced-beyond-everything" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let cost = i64::try_from(refunded.cost).unwrap_or(0).unsigned_abs();
            refund(&refunded.meter, state, cost, refunded.receipt, now);
        }
    }
    ForcedSixteen "forced-slices-of-sixteen": "a forced charge counts the first sixteen claims of a slice",
        "batches/largest-slices" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let before = states.to_vec();
            let answer = decide(claims, states);
            if claims.mode() == Mode::Force {
                states.iter_mut().zip(before).skip(16).for_each(|(state, before)| *state = before);
            }
            answer
        }
    }
    MillisOfBuckets "buckets-in-milliseconds": "a bucket's instant is kept in milliseconds",
        "same-decisions/random-bucket" {
        fn kept(&self, state: State) -> State {
            match state {
                State::Bucket(mut bucket) => {
                    for debt in &mut bucket.debts {
                        debt.tat = Timestamp::from_millis(debt.tat.as_nanos() / 1_000_000);
                    }
                    State::Bucket(bucket)
                }
                other => other,
            }
        }
    }
    ATickEarly "a-tick-early": "retry-after is a nanosecond too short", "waiting/exactly-as-told-log" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let mut answer = decide(claims, states);
            for verdict in answer.verdicts.iter_mut().filter(|verdict| !verdict.fits) {
                verdict.fits_at = verdict.fits_at.map(|at| Timestamp::from_nanos(at.as_nanos() - 1));
            }
            answer
        }
    }
    WholeMillis "waits-in-milliseconds": "retry-after is rounded up to whole milliseconds",
        "waiting/exactly-as-told-bucket" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let mut answer = decide(claims, states);
            for verdict in answer.verdicts.iter_mut().filter(|verdict| !verdict.fits) {
                let millis = |at: Timestamp| Timestamp::from_millis(at.as_nanos().div_ceil(1_000_000) + 1);
                verdict.fits_at = verdict.fits_at.map(millis);
            }
            answer
        }
    }
}
