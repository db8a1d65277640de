//! What others tell, put together with what is known: added once, or raised to the larger of the two.

use ratelimit_core::{BucketState, LogState, MAX_UNITS, Meter, State, Timestamp, Window, WindowState};

use super::units::{Units, led_to, place};

/// Adds units that were charged elsewhere. The state is one of the meter's.
///
/// What comes late is added to the segment that it belongs to, if that is still carried; a bucket and a log never
/// admit more after it than if every charge had come in its turn.
pub(super) fn add(meter: &Meter, state: &mut State, units: &Units) {
    match (meter, state, *units) {
        (Meter::Window(window), State::Window(state), Units::Window { segment, units }) => {
            turn_to(window, state, segment);
            if let Some(place) = place(window, state, segment) {
                let count = &mut state.counts[place];
                *count = count.saturating_add_signed(units).min(MAX_UNITS);
            }
        }
        (Meter::Bucket(bucket), State::Bucket(known), Units::Bucket { drain, floor }) => {
            if known.interval == bucket.interval() || known.tat == Timestamp::EPOCH {
                let began = Timestamp::derived(floor.as_nanos().saturating_sub(drain.unsigned_abs()));
                let at = if drain > 0 { known.at.max(began) } else { known.at };
                *known = BucketState { at, tat: led_to(known, drain, floor), interval: bucket.interval() };
            } else if drain > 0 {
                // The rate has changed: they are charged as units, at the instant at which they would have begun.
                let units = drain.unsigned_abs().div_ceil(bucket.interval());
                let began = floor.as_nanos().saturating_sub(drain.unsigned_abs());
                let mut state = State::Bucket(*known);
                meter.charge(&mut state, units, Timestamp::from_nanos(began));
                if let State::Bucket(charged) = state {
                    *known = charged;
                }
            }
        }
        (Meter::Log(_), state @ State::Log(_), Units::Log { newest, units }) if units > 0 => {
            meter.charge(state, units.unsigned_abs(), newest);
        }
        (Meter::Log(_), State::Log(state), Units::Log { newest, units }) => {
            // Those that were told as of the end of an interval are there at a later instant than that of their charge.
            let first = state.units.partition_point(|unit| *unit < newest.as_nanos());
            let most = state.units.len() - first;
            let taken = usize::try_from(units.unsigned_abs()).unwrap_or(usize::MAX).min(most);
            state.units.drain(first..first + taken);
        }
        _ => {}
    }
}

/// Raises what is known to what another knows: repeated or overlapping, it is counted once.
pub(super) fn raise(meter: &Meter, known: &mut State, other: &State) {
    match (meter, known, other) {
        (Meter::Window(window), State::Window(known), State::Window(other)) => {
            raise_window(window, known, other);
        }
        (Meter::Bucket(bucket), State::Bucket(known), State::Bucket(other)) => {
            if known.tat == Timestamp::EPOCH {
                *known = *other;
            } else if known.interval == other.interval {
                known.at = known.at.max(other.at);
                known.tat = known.tat.max(other.tat);
            } else if other.interval == bucket.interval() {
                // The other one has seen the change of the rate.
                known.tat = known.tat.max(other.tat);
            }
        }
        (Meter::Log(log), State::Log(known), State::Log(other)) => {
            raise_log(known, other, usize::try_from(log.limit()).unwrap_or(usize::MAX));
        }
        _ => {}
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

/// Of the two newest units the newer one, of the next ones likewise, and so on.
fn raise_log(known: &mut LogState, other: &LogState, most: usize) {
    let length = known.units.len().max(other.units.len()).min(most);
    let nth = |units: &std::collections::VecDeque<u64>, from_end: usize| {
        units.len().checked_sub(from_end).and_then(|place| units.get(place)).copied().unwrap_or(0)
    };
    known.units = (1..=length).rev().map(|n| nth(&known.units, n).max(nth(&other.units, n))).collect();
}

/// Makes a segment one of those that are carried, if it is newer than them.
pub(super) fn turn_to(window: &Window, state: &mut WindowState, segment: u64) {
    let newer = segment.saturating_sub(window.place(state.at).0);
    if newer > 0 {
        let shift = usize::try_from(newer).unwrap_or(usize::MAX).min(state.counts.len());
        state.counts.rotate_right(shift);
        state.counts[..shift].fill(0);
        state.at = window.instant(segment, 0);
    }
}
