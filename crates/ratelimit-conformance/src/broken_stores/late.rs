//! Stores that decide late claims by the clock of their caller.

use std::time::Duration;

use ratelimit_core::{Answer, Claims, Mode, State, Timestamp, decide};

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
fn late(state: &State, now: Timestamp) -> Duration {
    newest(&mut state.clone()).map_or(Duration::ZERO, |at| at.since(now))
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
            look.states.iter().flatten().any(|state| late(state, look.claims.now()) > Duration::ZERO)
        }
    }
}
