//! Which units of a log in a shared store are this node's, and which are other nodes'.

use std::collections::VecDeque;

use ratelimit_core::{LogState, Timestamp};

/// The owners of the units in a shared log.
#[derive(Debug, Default)]
pub(super) struct LogOwners {
    /// Own units in the store: their instants and counts.
    own: VecDeque<(Timestamp, u64)>,
    /// Other nodes' units in the local log.
    remote: VecDeque<(Timestamp, u64)>,
    /// Until this instant the local log may lack units that still count, because it was full.
    cropped: Timestamp,
}

impl LogOwners {
    /// Records own units that were charged in the store.
    pub(super) fn add_sent(&mut self, sent: u64, sent_at: Timestamp) {
        match self.own.back_mut() {
            Some((instant, units)) if *instant == sent_at => *units = units.saturating_add(sent),
            _ => self.own.push_back((sent_at, sent)),
        }
    }

    /// Updates the local log from the store's: units in the store that this node did not send belong to other nodes.
    ///
    /// If the store has more of them than the local log, the difference is added as of now; if it has fewer, the oldest are
    /// removed. A full log in the store has dropped its oldest units, which may be own ones; then nothing is removed.
    pub(super) fn update(
        &mut self,
        (limit, window): (u64, u64),
        state: &mut LogState,
        (live, pending): (u64, u64),
        at: Timestamp,
        oldest: Option<Timestamp>,
    ) {
        for runs in [&mut self.own, &mut self.remote] {
            runs.retain(|(instant, units)| {
                *units > 0 && instant.as_nanos().saturating_add(window) >= at.as_nanos()
            });
        }
        let dropped = sum(&self.own).saturating_sub(limit);
        cut(&mut self.own, dropped, |_, _| {});
        if let Some(oldest) = oldest
            && (sum(&self.own) < live || sum(&self.remote) > 0)
        {
            self.own.retain(|(instant, _)| *instant > oldest);
            // The store has dropped other nodes' units of that time, too: newer ones have replaced them.
            for (instant, units) in self.remote.iter_mut().filter(|(instant, _)| *instant < oldest) {
                take_out(state, instant.as_nanos(), std::mem::take(units));
            }
        }
        let (own, here) = (sum(&self.own), sum(&self.remote));
        let there = live.saturating_sub(own);
        if there > here {
            self.add_remote((limit, window), state, there - here, at);
        } else if live < limit {
            cut(&mut self.remote, here - there, |instant, units| take_out(state, instant.as_nanos(), units));
            // The store has fewer units than this node sent: the meter was reset.
            let missing = own.saturating_sub(live);
            cut(&mut self.own, missing, |_, _| {});
            let missing = usize::try_from(missing).unwrap_or(usize::MAX);
            state.units.drain(..missing.min(state.units.len()));
        }
        if at <= self.cropped {
            // The local log was full and dropped units, some of which may still be in the store.
            let gone = state.units.partition_point(|unit| unit.saturating_add(window) < at.as_nanos());
            let wanted = live.saturating_add(pending).min(limit);
            let short = wanted.saturating_sub((state.units.len() - gone) as u64);
            self.add_remote((limit, window), state, short, at);
        }
    }

    fn add_remote(&mut self, (limit, window): (u64, u64), state: &mut LogState, units: u64, at: Timestamp) {
        let newest = state.units.back().map_or(at, |unit| at.max(Timestamp::derived(*unit)));
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let added = usize::try_from(units).unwrap_or(usize::MAX).min(most);
        state.units.extend(std::iter::repeat_n(newest.as_nanos(), added));
        let surplus = state.units.len().saturating_sub(most);
        state.units.drain(..surplus);
        if surplus > 0 {
            self.cropped = Timestamp::derived(newest.as_nanos().saturating_add(window));
        }
        self.remote.push_back((newest, units));
    }

    /// The instant in the store of own units that were charged at `receipt`.
    pub(super) fn sent_at(&self, receipt: Timestamp) -> Option<Timestamp> {
        self.own.iter().map(|(at, _)| *at).find(|at| *at >= receipt)
    }

    /// Removes own units of this instant that were refunded in the store.
    pub(super) fn remove_sent(&mut self, sent_at: Timestamp, units: u64) {
        if let Some((_, sent)) = self.own.iter_mut().find(|(at, _)| *at == sent_at) {
            *sent = sent.saturating_sub(units);
        }
    }
}

fn sum(runs: &VecDeque<(Timestamp, u64)>) -> u64 {
    runs.iter().map(|(_, units)| *units).fold(0, u64::saturating_add)
}

/// Removes the oldest units, and calls `of` with the instants and counts.
fn cut(runs: &mut VecDeque<(Timestamp, u64)>, mut surplus: u64, mut of: impl FnMut(Timestamp, u64)) {
    for (instant, units) in runs {
        let cut = surplus.min(*units);
        of(*instant, cut);
        (*units, surplus) = (*units - cut, surplus - cut);
    }
}

/// Removes units of one instant from a log.
fn take_out(state: &mut LogState, instant: u64, units: u64) {
    let first = state.units.partition_point(|unit| *unit < instant);
    let end = state.units.partition_point(|unit| *unit <= instant);
    let taken = usize::try_from(units).unwrap_or(usize::MAX).min(end - first);
    state.units.drain(first..first + taken);
}
