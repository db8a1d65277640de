//! Which units of a log in a shared store are this node's, and which are other nodes'.

use std::collections::VecDeque;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{LogState, MAX_LOG_UNITS};

use super::units::count_left;

/// The owners of the units in a shared log.
#[derive(Debug, Default)]
pub(super) struct LogOwners {
    /// Own units in the store, in the order of their charges.
    sent: VecDeque<Run>,
    /// Other nodes' units in the local log.
    remote: VecDeque<Run>,
    /// All own units that were charged up to this instant have been sent.
    sent_until: Timestamp,
}

/// Units of one instant.
#[derive(Debug)]
struct Run {
    at: Timestamp,
    units: u64,
    /// Of own units in the store, the newest instant of those charges on this node.
    charged_at: Timestamp,
    /// Whether the store certainly has them.
    is_sure: bool,
}

impl LogOwners {
    /// Records own units that were charged in the store. On this node, the newest was charged at `charged_at`.
    pub(super) fn add_sent(&mut self, window: u64, units: u64, charged_at: Timestamp, at: Timestamp) {
        drop_left(&mut self.sent, window, charged_at);
        self.sent_until = self.sent_until.max(charged_at);
        match self.sent.back_mut() {
            Some(run) if run.at == at && run.is_sure => {
                let charged_at = run.charged_at.max(charged_at);
                *run = Run { at, units: run.units.saturating_add(units), charged_at, is_sure: true };
            }
            _ => self.sent.push_back(Run { at, units, charged_at, is_sure: true }),
        }
    }

    /// Records own units that the store may or may not have charged.
    pub(super) fn add_unsure(&mut self, window: u64, units: u64, charged_at: Timestamp) {
        drop_left(&mut self.sent, window, charged_at);
        self.sent_until = self.sent_until.max(charged_at);
        self.sent.push_back(Run { at: charged_at, units, charged_at, is_sure: false });
    }

    /// Updates the local log from the store's, which has `live` units at an instant: those that this node did not send belong
    /// to other nodes.
    ///
    /// If the store has more of them than the local log, the difference is added as of now; if it has fewer, the oldest are
    /// removed.
    pub(super) fn update(&mut self, window: u64, state: &mut LogState, live: u64, at: Timestamp) {
        let left = count_left(window, state, at);
        state.units.drain(..left);
        drop_left(&mut self.sent, window, at);
        drop_left(&mut self.remote, window, at);
        // The store keeps no more than that.
        let (sent, here) = (sum(&self.sent).min(MAX_LOG_UNITS), sum(&self.remote));
        let there = live.saturating_sub(sent);
        if there > here {
            self.add_remote(state, there - here, at);
        }
        cut(&mut self.remote, here.saturating_sub(there), |run, cut| take_out(state, run.at, cut));
        // The store has fewer units than this node sent: the meter was reset.
        let (missing, mut last) = (sent.saturating_sub(live), Timestamp::EPOCH);
        cut(&mut self.sent, missing, |run, cut| {
            if cut > 0 {
                last = last.max(run.charged_at);
            }
        });
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        let of_them = state.units.partition_point(|unit| *unit <= last.as_nanos());
        state.units.drain(..missing.min(of_them));
    }

    fn add_remote(&mut self, state: &mut LogState, units: u64, at: Timestamp) {
        let at = state.units.back().map_or(at, |unit| at.max(Timestamp::derived(*unit)));
        let added = usize::try_from(units).unwrap_or(usize::MAX);
        state.units.extend(std::iter::repeat_n(at.as_nanos(), added));
        self.remote.push_back(Run { at, units, charged_at: at, is_sure: true });
    }

    /// Whether own units that were charged at `receipt` have been sent, whatever became of them.
    pub(super) fn has_sent(&self, receipt: Timestamp) -> bool {
        receipt <= self.sent_until
    }

    /// The instant in the store of own units that were charged at `receipt`.
    pub(super) fn sent_at(&self, receipt: Timestamp) -> Option<Timestamp> {
        self.sent(receipt).map(|nth| self.sent[nth].at)
    }

    /// Removes own units that were charged at `receipt` and refunded in the store.
    pub(super) fn remove_sent(&mut self, receipt: Timestamp, units: u64) {
        if let Some(nth) = self.sent(receipt) {
            let run = &mut self.sent[nth];
            run.units = run.units.saturating_sub(units);
        }
    }

    /// The index of the own units that were charged at `receipt`.
    fn sent(&self, receipt: Timestamp) -> Option<usize> {
        self.sent.iter().position(|run| run.units > 0 && run.charged_at >= receipt)
    }
}

/// Drops runs that have left the window.
fn drop_left(runs: &mut VecDeque<Run>, window: u64, at: Timestamp) {
    runs.retain(|run| run.units > 0 && run.at.as_nanos().saturating_add(window) >= at.as_nanos());
}

/// The number of units that the store certainly has.
fn sum(runs: &VecDeque<Run>) -> u64 {
    runs.iter().filter(|run| run.is_sure).map(|run| run.units).fold(0, u64::saturating_add)
}

/// Removes the oldest units, and calls `of` with each run and how many of its units.
fn cut(runs: &mut VecDeque<Run>, mut surplus: u64, mut of: impl FnMut(&Run, u64)) {
    for run in runs.iter_mut().filter(|run| run.is_sure) {
        let cut = surplus.min(run.units);
        of(run, cut);
        (run.units, surplus) = (run.units - cut, surplus - cut);
    }
}

/// Removes units of one instant from a log.
fn take_out(state: &mut LogState, instant: Timestamp, units: u64) {
    let first = state.units.partition_point(|unit| *unit < instant.as_nanos());
    let end = state.units.partition_point(|unit| *unit <= instant.as_nanos());
    let taken = usize::try_from(units).unwrap_or(usize::MAX).min(end - first);
    state.units.drain(first..first + taken);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_readings_runs_are_kept_for_their_window_only() {
        let (mut unsure, mut sure) = (LogOwners::default(), LogOwners::default());
        for nanos in 0..1_000 {
            let at = Timestamp::from_nanos(nanos);
            unsure.add_unsure(10, 1, at);
            sure.add_sent(10, 1, at, at);
        }
        assert_eq!((unsure.sent.len(), sure.sent.len()), (11, 11));
        assert!(unsure.has_sent(Timestamp::EPOCH) && sure.sent_at(Timestamp::from_nanos(995)).is_some());
    }

    #[test]
    fn a_run_is_kept_while_its_units_can_be_refunded_on_this_node() {
        let mut owners = LogOwners::default();
        let [first, second, late] = [100, 105, 115].map(Timestamp::from_nanos);
        owners.add_sent(10, 1, first, first);
        // They reach the store late. There, the first have left the window by now, but not on this node.
        owners.add_sent(10, 1, second, late);
        assert_eq!((owners.sent_at(first), owners.sent_at(second)), (Some(first), Some(late)));
    }
}
