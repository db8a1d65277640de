//! Stores that decide late claims by the clock of their caller.

use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Meter, State, decide};
use ratelimit_core::store::{Answer, Claims, Mode, Refund};

use super::features::without_immediate;
use super::flaw::{Call, Look};

/// The instant of a meter's newest charge, if the state contains it.
fn newest(state: &mut State) -> Option<&mut Timestamp> {
    match state {
        State::Window(window) => Some(&mut window.at),
        State::Bucket(bucket) => Some(&mut bucket.at),
        State::Log(_) => None,
    }
}

/// The lateness of a caller.
pub(super) fn late(state: &State, now: Timestamp) -> Duration {
    newest(&mut state.clone()).map_or(Duration::ZERO, |at| at.since(now))
}

/// Whether the caller is late at one of the meters.
pub(super) fn is_late(look: &Look<'_>) -> bool {
    look.states.iter().flatten().any(|state| late(state, look.claims.now()) > Duration::ZERO)
}

/// Decides as of the caller's instant if `backwards` returns true for the lateness of the caller.
fn decide_late(
    claims: &Claims<'_>,
    states: &mut [Option<State>],
    backwards: impl Fn(Duration) -> bool,
) -> Answer {
    for state in states.iter_mut().flatten() {
        let late = late(state, claims.now());
        if let Some(at) = newest(state).filter(|_| late > Duration::ZERO && backwards(late)) {
            *at = claims.now();
        }
    }
    decide(claims, states)
}

/// Decides as if late callers had found the buckets of these meters new.
fn forget_if_late(claims: &Claims<'_>, states: &mut [Option<State>], of: impl Fn(&Bucket) -> bool) -> Answer {
    for (claim, state) in claims.iter().zip(states.iter_mut()) {
        let is_late = state.as_ref().is_some_and(|state| late(state, claims.now()) > Duration::ZERO);
        if is_late && matches!(&claim.meter, Meter::Bucket(bucket) if of(bucket)) {
            *state = None;
        }
    }
    decide(claims, states)
}

flaws! {
    BeyondSlack "late-beyond-the-slack": "callers more than a second late are decided by their own clock",
        "late/every-operation-fixed" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            decide_late(claims, states, |late| late > Duration::from_secs(1))
        }
    }
    BeyondMinutes "late-beyond-minutes": "a caller more than four minutes late finds a new meter",
        "late/random-bucket" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            for state in states.iter_mut() {
                let late = state.as_ref().map(|state| late(state, claims.now()));
                if late.is_some_and(|late| late > Duration::from_secs(240)) {
                    *state = None;
                }
            }
            decide(claims, states)
        }
    }
    BeyondDays "late-beyond-days": "a caller more than a day late is decided by its own clock",
        "late/every-operation-fixed" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            decide_late(claims, states, |late| late > Duration::from_secs(86_400))
        }
    }
    ForcedLate "late-forced-charges": "a forced charge that is late moves time back", "late/random-sliding" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            decide_late(claims, states, |_| claims.mode() == Mode::Force)
        }
    }
    LateRefunds "late-refunds": "a refund happens by the server's clock", "refunds/give-back-bucket" {
        fn instant(&self, call: Call, now: Timestamp) -> Timestamp {
            if call == Call::Refund { Timestamp::from_secs(1_900_000_000) } else { now }
        }
    }
    LateBatches "batches-by-the-servers-clock": "a batch is decided by the server's clock",
        "batches/instants-of-their-own" {
        fn instant(&self, call: Call, now: Timestamp) -> Timestamp {
            if call == Call::Batch { Timestamp::from_secs(1_900_000_000) } else { now }
        }
    }
    TornLate "torn-late": "only late callers read and write in two steps",
        "storms/across-a-turn-sliding" {
        fn torn(&self, look: &Look<'_>) -> bool {
            is_late(look)
        }
    }
    LateTotals "late-totals": "a late caller finds a new total", "steps/late-callers" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            forget_if_late(claims, states, |bucket| bucket.step() == i64::MAX.unsigned_abs())
        }
    }
    LateBans "late-at-bans": "a ban does not hold for callers behind its beginning", "bans/late-callers" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let kept = states.to_vec();
            let answer = forget_if_late(claims, states, |bucket| bucket.burst() == 0);
            for ((claim, state), kept) in claims.iter().zip(states).zip(kept) {
                if claim.cost == 0 {
                    *state = kept;
                }
            }
            answer
        }
    }
    LateRates "late-at-several-rates": "late callers move back the time of a bucket with units of several rates",
        "late/several-rates" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            for state in states.iter_mut().flatten() {
                if let State::Bucket(bucket) = state && bucket.debts.len() > 1 {
                    bucket.at = bucket.at.min(claims.now());
                }
            }
            decide(claims, states)
        }
    }
    LateTurns "late-turns": "late callers get no immediate units of a queue",
        "late/every-operation-in-steps-and-turns" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let is_late = |state: &State| late(state, claims.now()) > Duration::ZERO;
            let mut waiting = claims.to_vec();
            for (claim, state) in waiting.iter_mut().zip(&*states) {
                if state.as_ref().is_some_and(is_late) {
                    claim.meter = without_immediate(claim.meter);
                }
            }
            let waiting = Claims::new(claims.now(), claims.mode(), &waiting);
            decide(&waiting.unwrap_or(*claims), states)
        }
    }
    LateSlices "late-forced-slices": "a forced slice that is late moves time back", "late/every-operation-sliding" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            decide_late(claims, states, |_| claims.mode() == Mode::Force && claims.len() > 1)
        }
    }
    LateResets "late-resets": "a reset by a late caller does nothing", "late/every-operation-bucket" {
        fn resets(&self, state: &State, now: Timestamp) -> bool {
            late(state, now) == Duration::ZERO
        }
    }
    LateSeveral "late-refunds-of-several": "a late refund of several meters moves back the time of buckets",
        "late/every-operation-bucket" {
        fn refund_among(&self, refunds: &[Refund<'_>], place: usize, state: &mut Option<State>, now: Timestamp) {
            if let Some(State::Bucket(bucket)) = state && refunds.len() > 1 {
                bucket.at = bucket.at.min(now);
            }
            self.refund(&refunds[place], state, now);
        }
    }
}
