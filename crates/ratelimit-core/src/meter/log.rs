//! The log meter: the instant of every admitted unit.

use std::collections::VecDeque;

use super::charged::Charged;
use super::check::{check_period, check_units};
use crate::{LimitError, MAX_LOG_UNITS, Receipt, Timestamp, Verdict};

/// Stores the instant of each admitted unit for the length of the window: exact, at eight bytes per unit.
///
/// A unit counts through `instant + window` inclusive and leaves strictly after. Two units at one instant count as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    limit: u64,
    window: u64,
}

/// The state of a [`Log`]: the instants of its units in nanoseconds, oldest first.
///
/// It may still contain units that have left; the next charge drops them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Nanoseconds since the epoch, in ascending order, one entry for each unit.
    pub units: VecDeque<u64>,
}

/// The part of a log that a decision needs. A store whose server keeps the log sends this instead of the whole log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSight {
    /// The instant of the decision: the claim's, or that of the latest unit if that is later.
    pub now: Timestamp,
    /// Units in the window that ends at `now`.
    pub live: u64,
    /// The instant of the latest unit, if any is live.
    pub newest: Option<Timestamp>,
    /// The instant of the unit that blocks the claim: the cost fits as soon as this unit has left the window. `None` if the
    /// cost fits now, or never will.
    pub blocker: Option<Timestamp>,
}

impl Log {
    /// Creates a log of at most `limit` units in any `window` (nanoseconds).
    ///
    /// # Errors
    /// If a number is zero or beyond its bound ([`MAX_LOG_UNITS`](crate::meter::MAX_LOG_UNITS) units).
    pub fn new(limit: u64, window: u64) -> Result<Self, LimitError> {
        check_units("quota", limit, MAX_LOG_UNITS)?;
        check_period("period", window)?;
        Ok(Self { limit, window })
    }

    /// The maximum number of units in any window.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of the window in nanoseconds.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Returns the part of `state` that matters to a claim of `cost` at `now`. Takes logarithmic time.
    pub fn sight(&self, state: &LogState, cost: u64, now: Timestamp) -> LogSight {
        let units = &state.units;
        let newest = units.back().copied().unwrap_or(0);
        let now = now.as_nanos().max(newest);
        let gone = self.gone(state, now);
        let live = (units.len() - gone) as u64;
        let blocker = if cost > self.limit || live + cost <= self.limit {
            None
        } else {
            let nth = usize::try_from(live + cost - self.limit - 1).unwrap_or(usize::MAX);
            units.get(gone.saturating_add(nth)).map(|unit| Timestamp::derived(*unit))
        };
        let newest = (live > 0).then(|| Timestamp::derived(newest));
        LogSight { now: Timestamp::derived(now), live, newest, blocker }
    }

    /// Returns how many of the oldest units have left by `now`.
    ///
    /// Searches in steps that double, and then between the last two. Usually few units have left since the last search.
    /// It finds them without reading the rest of a long log.
    fn gone(&self, state: &LogState, now: u64) -> usize {
        let has_left = |unit: u64| unit.saturating_add(self.window) < now;
        let (mut gone, mut step) = (0, 1);
        while state.units.get(gone + step - 1).is_some_and(|unit| has_left(*unit)) {
            gone += step;
            step *= 2;
        }
        // Fewer than `step` more have left.
        while step > 1 {
            step /= 2;
            if state.units.get(gone + step - 1).is_some_and(|unit| has_left(*unit)) {
                gone += step;
            }
        }
        gone
    }

    pub(super) fn fits(&self, sight: &LogSight, cost: u64) -> bool {
        cost == 0 || sight.live + cost.min(self.limit + 1) <= self.limit
    }

    /// Keeps only the latest `limit` units: older ones cannot affect a decision.
    pub(super) fn charge(&self, state: &mut LogState, cost: u64, now: Timestamp) -> Charged {
        let ready_at = now;
        let now = now.as_nanos().max(state.units.back().copied().unwrap_or(0));
        let gone = self.gone(state, now);
        state.units.drain(..gone);
        // At most the limit, which is at most MAX_LOG_UNITS.
        let added = usize::try_from(cost.min(self.limit)).unwrap_or(0);
        let most = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let surplus = (state.units.len() + added).saturating_sub(most).min(state.units.len());
        state.units.drain(..surplus);
        self.make_room(&mut state.units, added);
        state.units.extend(std::iter::repeat_n(now, added));
        Charged { receipt: Receipt::at(Timestamp::derived(now)), ready_at }
    }

    /// Grows by an eighth and never beyond the limit: doubling would cost up to sixteen bytes per unit. Shrinks if three
    /// quarters are free: a key that is used for long would keep the room of its largest burst.
    fn make_room(&self, units: &mut VecDeque<u64>, added: usize) {
        let needed = units.len() + added;
        let most = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let target = needed.saturating_add((needed / 8).max(4)).min(most).max(needed);
        if needed > units.capacity() {
            units.reserve_exact(target - units.len());
        } else if units.capacity() / 4 > needed.max(16) {
            units.shrink_to(target);
        }
    }

    pub(super) fn refund(&self, state: &mut LogState, cost: u64, receipt: Receipt) {
        let charged_at = receipt.instant().as_nanos();
        let first = state.units.partition_point(|unit| *unit < charged_at);
        let end = state.units.partition_point(|unit| *unit <= charged_at);
        let given_back = usize::try_from(cost).unwrap_or(usize::MAX).min(end - first);
        state.units.drain(first..first + given_back);
    }

    /// Computes the figures of an answer from what was read of the log *after* the decision.
    pub fn verdict(&self, sight: &LogSight, cost: u64, now: Timestamp, charged: Option<Charged>) -> Verdict {
        let fits = charged.is_some() || self.fits(sight, cost);
        let charged = charged.unwrap_or(Charged { receipt: Receipt::at(now), ready_at: now });
        // A store may send an instant of a unit that has left already: then it leaves now.
        let leaves = |unit: Timestamp| Timestamp::derived(unit.as_nanos() + self.window + 1).max(now);
        Verdict {
            fits,
            limit: self.limit,
            remaining: self.limit.saturating_sub(sight.live),
            fits_at: if fits { Some(now) } else { sight.blocker.map(leaves) },
            reset_at: sight.newest.map_or(now, leaves),
            ready_at: charged.ready_at,
            receipt: charged.receipt,
        }
    }

    /// When the latest unit has left.
    pub(super) fn reset_at(&self, state: &LogState) -> Timestamp {
        state.units.back().map_or(Timestamp::EPOCH, |unit| Timestamp::derived(unit + self.window + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_expired_units_are_found() {
        let log = Log::new(1_000, 1_000_000).unwrap();
        let longest = if cfg!(miri) { 130 } else { 1_000 };
        for len in (0..70).chain([127, 128, 129, longest]) {
            // Two units at each instant.
            let state = LogState { units: (0..len).map(|nth| nth / 2 * 10).collect() };
            for now in (0..=len / 2).flat_map(|nth| [nth * 10, nth * 10 + 1]).map(|past| past + 1_000_000) {
                let left = state.units.iter().filter(|unit| **unit + 1_000_000 < now).count();
                assert_eq!(log.gone(&state, now), left, "{len} units at {now}");
            }
        }
    }

    #[test]
    fn room_of_a_burst_is_given_back() {
        let log = Log::new(100_000, 1_000).unwrap();
        let mut state = LogState::default();
        log.charge(&mut state, 100_000, Timestamp::from_nanos(0));
        assert!(state.units.capacity() >= 100_000);
        log.charge(&mut state, 10, Timestamp::from_nanos(5_000));
        assert!((10..=64).contains(&state.units.capacity()), "{}", state.units.capacity());
        assert_eq!(state.units, [5_000; 10]);
    }

    #[test]
    fn a_refund_returns_units_of_its_instant_only() {
        let log = Log::new(5, 100).unwrap();
        let mut state = LogState { units: [10, 20, 20, 30, 30].into() };
        log.refund(&mut state, 9, Receipt::at(Timestamp::from_nanos(20)));
        assert_eq!(state.units, [10, 30, 30]);
    }

    #[test]
    fn a_sight_tells_only_of_units_in_the_window() {
        let log = Log::new(2, 100).unwrap();
        let state = LogState { units: [10, 20].into() };
        let sight = |now| log.sight(&state, 1, Timestamp::from_nanos(now));
        let seen = |now| (sight(now).live, sight(now).newest.map(Timestamp::as_nanos));
        assert_eq!([seen(110), seen(111), seen(121)], [(2, Some(20)), (1, Some(20)), (0, None)]);
        let blocker =
            |cost| log.sight(&state, cost, Timestamp::from_nanos(50)).blocker.map(Timestamp::as_nanos);
        assert_eq!([blocker(0), blocker(1), blocker(2), blocker(3)], [None, Some(10), Some(20), None]);
        assert_eq!((log.limit(), log.window()), (2, 100));
    }
}
