//! Stores that are wrong about time.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State, decide};
use ratelimit_core::store::{Answer, Claims};

use super::broken_store::BrokenStore;
use super::flaw::{Call, Flaw};

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::new::<FollowsClockBack>(
            "follows-the-clock-back",
            "a late claim is counted in the window of its own instant",
            "time/late-claim-takes-nothing-twice-fixed",
        ),
        BrokenStore::new::<Milliseconds>(
            "milliseconds",
            "instants are cut to milliseconds",
            "worked-examples/same-millisecond-is-two",
        ),
        BrokenStore::new::<OncePerMillisecond>(
            "once-per-millisecond",
            "a log has one entry for each millisecond",
            "worked-examples/same-millisecond-is-two",
        ),
        BrokenStore::new::<LeavesAtOnce>(
            "leaves-at-once",
            "a log's unit leaves at the end of its window, not after it",
            "worked-examples/log-sequence",
        ),
        BrokenStore::new::<LosesPartOfRefill>(
            "loses-part-of-a-refill",
            "each access to a bucket restarts its current unit",
            "field-bugs/partial-refills-are-kept",
        ),
    ]
}

#[derive(Debug, Default)]
struct FollowsClockBack;

impl Flaw for FollowsClockBack {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        for (claim, slot) in claims.iter().zip(states.iter_mut()) {
            if let (Meter::Window(window), Some(State::Window(state))) = (claim.meter, &*slot)
                && window.place(claims.now()).0 < window.place(state.at).0
            {
                *slot = None;
            }
        }
        decide(claims, states)
    }
}

#[derive(Debug, Default)]
struct Milliseconds;

impl Flaw for Milliseconds {
    fn instant(&self, _: Call, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_nanos() / 1_000_000)
    }
}

#[derive(Debug, Default)]
struct OncePerMillisecond;

impl Flaw for OncePerMillisecond {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let answer = decide(claims, states);
        for state in states {
            if let Some(State::Log(log)) = state {
                let mut units: Vec<u64> = log.units.drain(..).collect();
                units.dedup_by_key(|unit| *unit / 1_000_000);
                log.units.extend(units);
            }
        }
        answer
    }
}

#[derive(Debug, Default)]
struct LeavesAtOnce;

impl Flaw for LeavesAtOnce {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let now = claims.now().as_nanos();
        for (claim, state) in claims.iter().zip(states.iter_mut()) {
            if let (Meter::Log(meter), Some(State::Log(log))) = (claim.meter, state) {
                log.units.retain(|unit| unit.saturating_add(meter.window()) > now);
            }
        }
        decide(claims, states)
    }
}

#[derive(Debug, Default)]
struct LosesPartOfRefill;

impl Flaw for LosesPartOfRefill {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let answer = decide(claims, states);
        let now = claims.now().as_nanos();
        for state in states {
            if let Some(State::Bucket(bucket)) = state {
                for debt in &mut bucket.debts {
                    let left = debt.tat.as_nanos().saturating_sub(now);
                    let whole = left.div_ceil(debt.interval) * debt.interval;
                    debt.tat = Timestamp::from_nanos(now + whole);
                }
            }
        }
        answer
    }

    fn writes(&self, _: &Answer) -> bool {
        true
    }
}
