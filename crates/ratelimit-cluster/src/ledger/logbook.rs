//! Whose the units of a log in a shared store are: this node's, or the others'.

use std::collections::VecDeque;

use ratelimit_core::{LogState, Timestamp};

/// What a node knows of the units in a log that it shares.
#[derive(Debug, Default)]
pub(super) struct LogBook {
    /// Own units in the store: as of which instant, and how many.
    told: VecDeque<(Timestamp, u64)>,
    /// The other nodes' units in the log here.
    foreign: VecDeque<(Timestamp, u64)>,
    /// Until when the log here may have dropped units that still count.
    cropped: Timestamp,
}

impl LogBook {
    /// Own units of a log were told.
    pub(super) fn tell(&mut self, told: u64, told_at: Timestamp) {
        match self.told.back_mut() {
            Some((instant, units)) if *instant == told_at => *units = units.saturating_add(told),
            _ => self.told.push_back((told_at, told)),
        }
    }

    /// The other nodes' units are those in the store that this node has not told.
    ///
    /// What the store has more of them than are here is added as of now, what it has less is taken from the oldest. A
    /// store whose log is full has dropped its oldest units, which may be own ones; then nothing is taken.
    pub(super) fn settle(
        &mut self,
        (limit, window): (u64, u64),
        state: &mut LogState,
        (live, pending): (u64, u64),
        at: Timestamp,
        oldest: Option<Timestamp>,
    ) {
        for runs in [&mut self.told, &mut self.foreign] {
            runs.retain(|(instant, units)| {
                *units > 0 && instant.as_nanos().saturating_add(window) >= at.as_nanos()
            });
        }
        let dropped = sum(&self.told).saturating_sub(limit);
        cut(&mut self.told, dropped, |_, _| {});
        if let Some(oldest) = oldest
            && (sum(&self.told) < live || sum(&self.foreign) > 0)
        {
            self.told.retain(|(instant, _)| *instant > oldest);
            // So has it those of others: newer ones have come in their place.
            for (instant, units) in self.foreign.iter_mut().filter(|(instant, _)| *instant < oldest) {
                take_out(state, instant.as_nanos(), std::mem::take(units));
            }
        }
        let (own, here) = (sum(&self.told), sum(&self.foreign));
        let there = live.saturating_sub(own);
        if there > here {
            self.add_foreign((limit, window), state, there - here, at);
        } else if live < limit {
            cut(&mut self.foreign, here - there, |instant, units| take_out(state, instant.as_nanos(), units));
            // The store has fewer than this node has told: somebody has reset the meter.
            let missing = own.saturating_sub(live);
            cut(&mut self.told, missing, |_, _| {});
            let missing = usize::try_from(missing).unwrap_or(usize::MAX);
            state.units.drain(..missing.min(state.units.len()));
        }
        if at <= self.cropped {
            // Units were dropped here for which there was no room; some of them may still be in the store.
            let gone = state.units.partition_point(|unit| unit.saturating_add(window) < at.as_nanos());
            let wanted = live.saturating_add(pending).min(limit);
            let short = wanted.saturating_sub((state.units.len() - gone) as u64);
            self.add_foreign((limit, window), state, short, at);
        }
    }

    fn add_foreign(&mut self, (limit, window): (u64, u64), state: &mut LogState, units: u64, at: Timestamp) {
        let newest = state.units.back().map_or(at, |unit| at.max(Timestamp::derived(*unit)));
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let added = usize::try_from(units).unwrap_or(usize::MAX).min(most);
        state.units.extend(std::iter::repeat_n(newest.as_nanos(), added));
        let surplus = state.units.len().saturating_sub(most);
        state.units.drain(..surplus);
        if surplus > 0 {
            self.cropped = Timestamp::derived(newest.as_nanos().saturating_add(window));
        }
        self.foreign.push_back((newest, units));
    }

    /// As of which instant units were told that were charged at another.
    pub(super) fn told_at(&self, receipt: Timestamp) -> Option<Timestamp> {
        self.told.iter().map(|(at, _)| *at).find(|at| *at >= receipt)
    }

    /// Own units of a log that were told as of this instant were given back.
    pub(super) fn untell(&mut self, told_at: Timestamp, units: u64) {
        if let Some((_, told)) = self.told.iter_mut().find(|(at, _)| *at == told_at) {
            *told = told.saturating_sub(units);
        }
    }
}

fn sum(runs: &VecDeque<(Timestamp, u64)>) -> u64 {
    runs.iter().map(|(_, units)| *units).fold(0, u64::saturating_add)
}

/// Takes so many of the oldest units away, and says of which instants they were.
fn cut(runs: &mut VecDeque<(Timestamp, u64)>, mut surplus: u64, mut of: impl FnMut(Timestamp, u64)) {
    for (instant, units) in runs {
        let cut = surplus.min(*units);
        of(*instant, cut);
        (*units, surplus) = (*units - cut, surplus - cut);
    }
}

/// Takes units of one instant out of a log.
fn take_out(state: &mut LogState, instant: u64, units: u64) {
    let first = state.units.partition_point(|unit| *unit < instant);
    let end = state.units.partition_point(|unit| *unit <= instant);
    let taken = usize::try_from(units).unwrap_or(usize::MAX).min(end - first);
    state.units.drain(first..first + taken);
}
