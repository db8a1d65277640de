//! By how much each admission went beyond the limit, by definition, for every kind of meter.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::Receipt;

/// Units that one node has admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) at: Timestamp,
    pub(crate) cost: u64,
    /// Which life of which node.
    pub(crate) by: usize,
    pub(crate) receipt: Receipt,
    /// When its units were given back, of a log.
    pub(crate) returned: Option<Timestamp>,
}

/// The units of a log that may count, because nobody gave them back before they left their window, less `late`, and they left it
/// so long ago at most.
pub(crate) fn kept(admitted: &[Admission], now: Timestamp, window: u64, (late, past): (u64, u64)) -> u64 {
    let is_kept = |one: &&Admission| {
        let left = one.at.as_nanos() + window;
        let is_late = |returned: Timestamp| returned.as_nanos() + late > left;
        left + past >= now.as_nanos() && one.returned.is_none_or(is_late)
    };
    admitted.iter().filter(is_kept).map(|one| one.cost).sum()
}

/// Units beyond the limit at each admission, which come in the order of time.
pub(crate) fn overs(meter: &Meter, admitted: &[Admission]) -> Vec<u64> {
    let mut state = meter.fresh();
    let over = |(place, units): (usize, &Admission)| match meter {
        Meter::Window(window) => {
            meter.charge(&mut state, units.cost, units.at);
            let State::Window(state) = &state else { return 0 };
            let (length, elapsed) = (u128::from(window.segment()), window.place(units.at).1);
            let weight = |age: usize| {
                let is_weighted = age > 0 && age + 1 == state.counts.len() && !window.strict();
                if is_weighted { length - u128::from(elapsed) } else { length }
            };
            let scaled = (0..).zip(&state.counts).map(|(age, count)| u128::from(*count) * weight(age));
            beyond(scaled.sum(), u128::from(window.limit()) * length, length)
        }
        Meter::Bucket(bucket) => {
            meter.charge(&mut state, units.cost, units.at);
            let State::Bucket(state) = &state else { return 0 };
            let tat = state.tat().unwrap_or(units.at);
            let debt = tat.as_nanos().saturating_sub(units.at.as_nanos());
            beyond(u128::from(debt), u128::from(bucket.tolerance()), u128::from(bucket.interval()))
        }
        Meter::Log(log) => {
            let counts = |one: &&Admission| {
                one.at.as_nanos() + log.window() >= units.at.as_nanos()
                    && one.returned.is_none_or(|returned| returned > units.at)
            };
            let live: u64 = admitted[..=place].iter().filter(counts).map(|one| one.cost).sum();
            live.saturating_sub(log.limit())
        }
    };
    admitted.iter().enumerate().map(over).collect()
}

fn beyond(sum: u128, most: u128, unit: u128) -> u64 {
    u64::try_from(sum.saturating_sub(most).div_ceil(unit)).unwrap_or(u64::MAX)
}
