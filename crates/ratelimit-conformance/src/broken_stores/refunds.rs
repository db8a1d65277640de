//! Stores that give back wrongly.

use ratelimit_core::{Refund, State, Timestamp, refund};

use super::{BrokenStore, Flaw};

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::new::<IgnoresRefunds>(
            "ignores-refunds",
            "nothing is given back",
            "refunds/give-back-log",
        ),
        BrokenStore::new::<RefundsWhatHasLeft>(
            "refunds-what-has-left",
            "units are given back that have come back by themselves",
            "refunds/nothing-that-has-left-fixed",
        ),
        BrokenStore::new::<RefundsReset>(
            "refunds-reset",
            "a refund forgets the whole meter",
            "refunds/settle-bucket",
        ),
    ]
}

#[derive(Debug, Default)]
struct IgnoresRefunds;

impl Flaw for IgnoresRefunds {
    fn refund(&self, _: &Refund<'_>, _: &mut Option<State>, _: Timestamp) {}
}

#[derive(Debug, Default)]
struct RefundsWhatHasLeft;

impl Flaw for RefundsWhatHasLeft {
    fn refund(&self, given: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
        let newest = match &*state {
            Some(State::Window(state)) => state.at,
            Some(State::Bucket(state)) => state.tat,
            Some(State::Log(state)) => Timestamp::from_nanos(state.units.back().copied().unwrap_or(0)),
            None => return,
        };
        refund(&given.meter, state, given.cost, newest, now);
    }
}

#[derive(Debug, Default)]
struct RefundsReset;

impl Flaw for RefundsReset {
    fn refund(&self, given: &Refund<'_>, state: &mut Option<State>, _: Timestamp) {
        if state.is_some() {
            *state = Some(given.meter.fresh());
        }
    }
}
