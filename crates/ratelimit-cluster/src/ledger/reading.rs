//! What a shared store reports about a meter.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Debt, MAX_PERIOD_NANOS, Meter, State};
use ratelimit_core::store::CLOCK_SLACK;
use smallvec::smallvec;

use super::merge;
use super::units::{Units, moved, signed};

/// A reading of the shared store, taken after this node's units were sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reading {
    /// All units of one segment. If it is the newest segment, also the time of the request.
    Window { segment: u64, total: u64, newest_at: Option<Timestamp> },
    /// The units that a bucket owes.
    Bucket(BucketReading),
    /// How many units of a log are live at an instant.
    Log { live: u64, at: Timestamp },
}

/// What a shared store reports about a bucket, whatever the rates at which its units drain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketReading {
    /// Units that have not drained; a partly drained unit counts whole.
    pub(crate) units: u64,
    /// When all of them will have drained.
    pub(crate) tat: Timestamp,
    /// The time of the claim. The store decided as of its newest charge if that is later.
    pub(crate) at: Timestamp,
    /// The time of the request.
    pub(crate) now: Timestamp,
    /// Whether nothing indicates units of another rate than the requested one.
    pub(crate) has_one_rate: bool,
}

impl BucketReading {
    /// Replaces the state by the reading plus the `beside` units, unless the state agrees with the reading: then its rates are
    /// exact and it stays. Returns whether it stays.
    pub(super) fn apply(&self, requested: &Meter, state: &mut State, beside: &[(Meter, Units)]) -> bool {
        let (State::Bucket(known), Meter::Bucket(bucket)) = (&mut *state, requested) else { return false };
        // Of an empty bucket, the store does not say since when it is empty.
        let is_tat = known
            .tat()
            .is_some_and(|tat| tat == self.tat || self.units == 0 && tat <= self.tat.min(self.now));
        let is_known = is_tat && known.owed(self.now) == self.units;
        if beside.is_empty() && is_known {
            return true;
        }
        known.debts = smallvec![self.debt(bucket.interval())];
        for (meter, units) in beside {
            merge::add(meter, state, units);
        }
        false
    }

    /// A debt that is never less than what the store owes, provided that the store decided within [`CLOCK_SLACK`] of the
    /// request.
    ///
    /// If there may be several rates, each debt in the store is at most all units now, and zero when all have drained. The
    /// returned debt falls evenly between these two points, and is later by the slack or by half of its length, so it is never
    /// smaller.
    pub(super) fn debt(&self, interval: u64) -> Debt {
        let until_drained = |from: Timestamp| self.tat.as_nanos().saturating_sub(from.as_nanos());
        let left = until_drained(self.now);
        let may_be_alone = until_drained(self.at) > self.units.saturating_sub(1).saturating_mul(interval);
        if self.has_one_rate && may_be_alone || left == 0 {
            return Debt::only(self.tat, interval);
        }
        let evenly = left.checked_div(self.units).unwrap_or(interval);
        let late = left.min(CLOCK_SLACK.as_secs() * 1_000_000_000);
        let tat = moved(self.tat, signed(late));
        Debt::only(tat, evenly.clamp(1, MAX_PERIOD_NANOS))
    }
}
