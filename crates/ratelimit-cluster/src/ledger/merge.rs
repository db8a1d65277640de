//! Merging what other nodes send into a state: by addition, or by maximum.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{
    Bucket, BucketState, Debt, Log, LogState, MAX_LOG_UNITS, MAX_RATES, MAX_UNITS, Meter, State, Window,
    WindowState,
};
use ratelimit_core::store::Receipt;
use smallvec::smallvec;

use super::units::{Units, moved, place, signed};

/// Adds units that were charged on another node. The state belongs to the meter.
///
/// Late units are added to their own segment if it is still carried. A bucket or a log never admits more after it than if
/// all charges had been made in order.
pub(super) fn add(meter: &Meter, state: &mut State, units: &Units) {
    match (meter, state, *units) {
        (Meter::Window(window), State::Window(state), Units::Window { segment, units }) => {
            turn_to(window, state, segment);
            if let Some(place) = place(window, state, segment) {
                let count = &mut state.counts[place];
                *count = count.saturating_add_signed(units).min(MAX_UNITS);
            }
        }
        (Meter::Bucket(bucket), state @ State::Bucket(_), Units::Bucket { drain, floor }) => {
            add_to_bucket(bucket, state, drain, floor);
        }
        (Meter::Log(log), state @ State::Log(_), Units::Log { newest, units }) if units > 0 => {
            largest(log).charge(state, units.unsigned_abs(), newest);
        }
        (Meter::Log(_), State::Log(state), Units::Log { newest, units }) => {
            // Units sent at the end of an interval have a later instant here than their charge.
            let first = state.units.partition_point(|unit| *unit < newest.as_nanos());
            let most = state.units.len() - first;
            let taken = usize::try_from(units.unsigned_abs()).unwrap_or(usize::MAX).min(most);
            state.units.drain(first..first + taken);
        }
        _ => {}
    }
}

/// Raises a state to the maximum of it and another one, so repeated or overlapping states count once.
pub(super) fn raise(meter: &Meter, known: &mut State, other: &State) {
    match (meter, known, other) {
        (Meter::Window(window), State::Window(known), State::Window(other)) => {
            raise_window(window, known, other);
        }
        (Meter::Bucket(_), State::Bucket(known), State::Bucket(other)) => raise_bucket(known, other),
        (Meter::Log(_), State::Log(known), State::Log(other)) => raise_log(known, other),
        _ => {}
    }
}

/// Without units of other rates this follows [`Units::Bucket`], also with a drain of zero: then the TAT is at least the floor.
/// Otherwise the units are charged at the instant at which they would have begun, but no earlier than the newest known charge,
/// so that they count for longer rather than for less. What has drained at that charge is not refunded.
fn add_to_bucket(bucket: &Bucket, state: &mut State, drain: i64, floor: Timestamp) {
    let State::Bucket(known) = state else { return };
    let not_drained = signed(floor.as_nanos().saturating_sub(known.at.as_nanos()));
    let (drain, floor) =
        if drain >= 0 { (drain, floor) } else { (drain.max(-not_drained), Timestamp::EPOCH) };
    let (time, interval) = (drain.unsigned_abs(), bucket.interval());
    // Instants of other nodes may be further ahead than any clock.
    let began = Timestamp::from_nanos(floor.as_nanos().saturating_sub(time));
    let only = if known.debts.is_empty() {
        Some(Timestamp::EPOCH)
    } else {
        let is_of_rate = |debt: &Debt| debt.interval == interval || debt.tat == Timestamp::EPOCH;
        known.only_debt().filter(is_of_rate).map(|debt| debt.tat)
    };
    if let Some(tat) = only {
        known.at = if drain > 0 { known.at.max(began) } else { known.at };
        known.debts = smallvec![Debt::only(moved(tat, drain).max(floor), interval)];
    } else if drain > 0 {
        Meter::Bucket(*bucket).charge(state, time.div_ceil(interval), began);
    } else if let Some(debt) = known.debts.iter().find(|debt| debt.interval == interval) {
        // Nothing of a partly drained unit is refunded. Which turns stay was decided by the node that refunded.
        let (receipt, at) = (Receipt::at(debt.receipt), known.at);
        let meter = Meter::Bucket(bucket.with_immediate(u64::MAX));
        meter.refund(state, time / interval, receipt, at);
    }
}

/// The larger debt of each rate. Drained debts are removed, except the last one to drain: late units are added to it.
fn raise_bucket(known: &mut BucketState, other: &BucketState) {
    known.at = known.at.max(other.at);
    for debt in &other.debts {
        let place = known.debts.partition_point(|known| known.interval < debt.interval);
        match known.debts.get_mut(place).filter(|known| known.interval == debt.interval) {
            Some(same) => {
                (same.tat, same.receipt) = (same.tat.max(debt.tat), same.receipt.max(debt.receipt));
            }
            None => known.debts.insert(place, *debt),
        }
    }
    let (at, last) = (known.at, known.tat());
    known.debts.retain(|debt| debt.tat > at || Some(debt.tat) == last);
    while known.debts.len() > MAX_RATES {
        // The units of the fastest rate are counted at the next slower one.
        let fastest = known.debts.remove(0);
        let next = &mut known.debts[0];
        let left = u128::from(fastest.tat.as_nanos().saturating_sub(at.as_nanos()));
        let left = (left * u128::from(next.interval)).div_ceil(u128::from(fastest.interval));
        let tat = moved(at, i64::try_from(left).unwrap_or(i64::MAX)).max(next.tat);
        next.receipt = moved(next.receipt, i64::try_from(tat.since(next.tat).as_nanos()).unwrap_or(i64::MAX));
        next.tat = tat;
    }
}

fn raise_window(window: &Window, known: &mut WindowState, other: &WindowState) {
    let newest = window.place(other.at).0;
    turn_to(window, known, newest);
    known.at = known.at.max(other.at);
    for (segment, count) in (0..=newest).rev().zip(&other.counts) {
        if let Some(place) = place(window, known, segment) {
            known.counts[place] = known.counts[place].max(*count);
        }
    }
}

/// The log with the highest possible limit. A log that is charged deletes its oldest units beyond its limit, but units of
/// several nodes may be more, and the newer ones may be refunded.
pub(crate) fn largest(log: &Log) -> Meter {
    Meter::Log(Log::new(MAX_LOG_UNITS, log.window()).unwrap_or(*log))
}

/// Compares the logs unit by unit from the newest on, and keeps the newer of each pair.
fn raise_log(known: &mut LogState, other: &LogState) {
    let length = known.units.len().max(other.units.len());
    let nth = |units: &std::collections::VecDeque<u64>, from_end: usize| {
        units.len().checked_sub(from_end).and_then(|place| units.get(place)).copied().unwrap_or(0)
    };
    known.units = (1..=length).rev().map(|n| nth(&known.units, n).max(nth(&other.units, n))).collect();
}

/// Moves the state on to a segment, if that is newer than its newest one.
pub(super) fn turn_to(window: &Window, state: &mut WindowState, segment: u64) {
    let newer = segment.saturating_sub(window.place(state.at).0);
    if newer > 0 {
        let shift = usize::try_from(newer).unwrap_or(usize::MAX).min(state.counts.len());
        state.counts.rotate_right(shift);
        state.counts[..shift].fill(0);
        state.at = window.instant(segment, 0);
    }
}
