//! The compact form of a meter in a shard: one cache line.

use std::ops::{Deref, DerefMut};

use ratelimit_core::Timestamp;
use ratelimit_core::meter::Meter;
use ratelimit_memory::kit;

use super::units::Units;

/// A meter: the fingerprint of its name, its expiry, its state and its pending units. Everything that a charge of an existing
/// meter does not need is in the cold part, which the slot refers to by number.
///
/// The first word of the pending units takes at most 63 bits.
#[repr(align(64))]
pub(super) struct Slot {
    base: kit::Slot,
    pending: [u64; 2],
    /// The number of the meter of the last charge.
    pub(super) meter: u32,
    /// The number of the cold part.
    pub(super) cold: u32,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// Set if there are pending units.
const PENDING: u64 = 1 << 63;

/// Instead of pending units: the meter has to be read.
const READING: [u64; 2] = [0, 1];

impl Slot {
    /// A meter without pending units.
    pub(super) fn new(base: kit::Slot, meter: u32, cold: u32) -> Self {
        Self { base, pending: [0; 2], meter, cold }
    }

    /// Whether there are pending units, or the meter has to be read.
    #[inline]
    pub(super) fn is_listed(&self) -> bool {
        self.pending != [0; 2]
    }

    /// Whether the meter has to be read, and there are no pending units.
    fn is_reading(&self) -> bool {
        self.pending == READING
    }

    /// Records that the meter has to be read, unless units are pending: then it is read anyway.
    #[inline]
    pub(super) fn set_reading(&mut self) {
        // Units that were refunded before they were sent are not sent.
        if self.pending[1] == 0 {
            self.pending = READING;
        }
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

    /// Replaces the pending units. Without them, a meter that had to be read still has to be.
    #[inline]
    pub(super) fn set_pending(&mut self, units: Option<Units>) {
        let words = units.map(|units| match units {
            Units::Window { segment, units } => [segment, units.cast_unsigned()],
            Units::Bucket { drain, floor } => [floor.as_nanos(), drain.cast_unsigned()],
            Units::Log { newest, units } => [newest.as_nanos(), units.cast_unsigned()],
        });
        let none = if self.is_reading() { READING } else { [0; 2] };
        self.pending = words.map_or(none, |[first, second]| [first.min(!PENDING) | PENDING, second]);
    }

    /// Takes the pending units; those of a [reading](Units::reading) if the meter only has to be read.
    pub(super) fn take_pending(&mut self, meter: &Meter) -> Option<Units> {
        let units = if self.is_reading() { Some(Units::reading(meter)) } else { self.pending(meter) };
        self.pending = [0; 2];
        units
    }
}

impl Deref for Slot {
    type Target = kit::Slot;

    #[inline]
    fn deref(&self) -> &kit::Slot {
        &self.base
    }
}

impl DerefMut for Slot {
    #[inline]
    fn deref_mut(&mut self) -> &mut kit::Slot {
        &mut self.base
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::Limit;
    use ratelimit_memory::kit::{CompactState, Fingerprint};

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
                let base = kit::Slot::new(Fingerprint { low: 1, high: 2 }, CompactState::default());
                let mut slot = Slot::new(base, 3, 4);
                assert_eq!((slot.is_listed(), slot.pending(&meter(text))), (false, None));
                slot.set_pending(Some(units));
                assert_eq!((slot.is_listed(), slot.pending(&meter(text))), (true, Some(units)));
                slot.set_pending(None);
                assert!(!slot.is_listed());
                slot.set_reading();
                slot.set_pending(None);
                assert_eq!((slot.is_listed(), slot.pending(&meter(text))), (true, None));
                let reading = slot.take_pending(&meter(text));
                assert!(reading.is_some_and(|units| units.is_reading()) && !slot.is_listed());
            }
        }
    }
}
