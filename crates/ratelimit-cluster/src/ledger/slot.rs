//! The compact form of a meter in a shard: one cache line.

use ratelimit_core::{Claim, Meter, Mode, State, Timestamp, Verdict};
use ratelimit_memory::kit::{CompactState, expiry};

use super::fingerprint::Fingerprint;
use super::units::Units;

/// A meter: the fingerprint of its name, its expiry, its state and its pending units. Everything that a charge of an existing
/// meter does not need is in the cold part, which the slot refers to by number.
///
/// The first word of the pending units takes at most 63 bits.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Slot {
    hash: u64,
    other: u32,
    /// The second of its [`expiry`].
    forget_at: u32,
    state: CompactState,
    pending: [u64; 2],
    /// The number of the meter of the last charge.
    pub(super) meter: u32,
    /// The number of the cold part.
    pub(super) cold: u32,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// Set if there are pending units.
const PENDING: u64 = 1 << 63;

impl Slot {
    /// A meter without charges. If its state is too large for a slot, it belongs into the cold part.
    pub(super) fn new(fingerprint: Fingerprint, of: &Meter, meter: u32, cold: u32) -> Self {
        let Fingerprint { hash, other } = fingerprint;
        let state = CompactState::fresh(of, Timestamp::EPOCH)
            .map_or_else(|| CompactState::elsewhere(0), |(state, _)| state);
        Self { hash, other, forget_at: 0, state, pending: [0; 2], meter, cold }
    }

    #[inline]
    pub(super) fn is(&self, fingerprint: Fingerprint) -> bool {
        self.hash == fingerprint.hash && self.other == fingerprint.other
    }

    #[inline]
    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint { hash: self.hash, other: self.other }
    }

    /// The state; `None` if it is in the cold part.
    #[inline]
    pub(super) fn state(&self) -> Option<State> {
        self.state.state().ok()
    }

    /// Decides a claim in place, and charges it if it is admitted and the mode says so. `None` if the state is in the cold part,
    /// of another kind or shape than the claim's, or drains at another rate.
    #[inline]
    pub(super) fn claim(&mut self, claim: &Claim<'_>, now: Timestamp, mode: Mode) -> Option<(bool, Verdict)> {
        self.state.claim(&claim.meter, claim.cost, now, mode)
    }

    /// The newest instant of a charge, if the state is in the slot.
    #[inline]
    pub(super) fn at(&self) -> Timestamp {
        self.state.at()
    }

    /// Stores a state. `false` if it does not fit and has to be stored in the cold part.
    #[inline]
    pub(super) fn keep(&mut self, state: &State) -> bool {
        self.state = CompactState::of(state).unwrap_or_else(|| CompactState::elsewhere(0));
        !self.is_large()
    }

    /// Whether the state is in the cold part.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.state.is_elsewhere()
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.pending[0] != 0
    }

    /// The pending units; `meter` is of the same kind as the slot's.
    #[inline]
    pub(super) fn pending(&self, meter: &Meter) -> Option<Units> {
        let [first, second] = self.pending;
        let (first, second) = ((first != 0).then_some(first & !PENDING)?, second.cast_signed());
        Some(match meter {
            Meter::Window(_) => Units::Window { segment: first, units: second },
            Meter::Bucket(_) => Units::Bucket { drain: second, floor: Timestamp::derived(first) },
            Meter::Log(_) => Units::Log { newest: Timestamp::derived(first), units: second },
        })
    }

    /// Replaces the pending units.
    #[inline]
    pub(super) fn set_pending(&mut self, units: Option<Units>) {
        let words = units.map(|units| match units {
            Units::Window { segment, units } => [segment, units.cast_unsigned()],
            Units::Bucket { drain, floor } => [floor.as_nanos(), drain.cast_unsigned()],
            Units::Log { newest, units } => [newest.as_nanos(), units.cast_unsigned()],
        });
        self.pending = words.map_or([0; 2], |[first, second]| [first.min(!PENDING) | PENDING, second]);
    }

    /// Delays expiry until this instant plus the slack of late callers. The expiry never moves back, so that earlier answers
    /// stay valid.
    #[inline]
    pub(super) fn keep_until(&mut self, instant: Timestamp) {
        expiry::keep_until(&mut self.forget_at, instant);
    }

    /// Whether the meter can no longer influence a decision.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        expiry::has_passed(self.forget_at, now)
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::Limit;

    use super::*;

    #[test]
    fn pending_units_round_trip() {
        let meter = |text: &str| text.parse::<Limit>().unwrap().meter_for(b"k");
        let instants = [Timestamp::EPOCH, Timestamp::derived(i64::MAX.cast_unsigned())];
        for (units, instant) in
            [i64::MIN, -1, 0, i64::MAX].into_iter().flat_map(|units| instants.map(|at| (units, at)))
        {
            let window = Units::Window { segment: instant.as_nanos(), units };
            let bucket = Units::Bucket { drain: units, floor: instant };
            let log = Units::Log { newest: instant, units };
            for (text, units) in [("1/s fixed", window), ("1/s burst 1", bucket), ("1/s log", log)] {
                let mut slot = Slot::new(Fingerprint { hash: 1, other: 2 }, &meter(text), 3, 4);
                assert_eq!((slot.is_pending(), slot.pending(&meter(text))), (false, None));
                slot.set_pending(Some(units));
                assert_eq!((slot.is_pending(), slot.pending(&meter(text))), (true, Some(units)));
                slot.set_pending(None);
                assert!(!slot.is_pending());
            }
        }
    }
}
