//! Which states of a meter charges surely fit, worked out before the state is known. See `take.sql`.

use ratelimit_core::{MAX_UNITS, Meter};

use crate::wire::{Slice, ask_numbers, signed};

/// The latest instant of a state.
const MAX_INSTANT: i64 = (1 << 62) - 1;

/// Whole numbers below this are exact as floating-point numbers.
const EXACT: i64 = 1 << 53;

/// A share is this much too large, which is more than can be lost when it is worked out.
const MARGIN: f64 = 1.0 + f64::EPSILON * 16.0;

/// The states that charges on one meter fit, all of them, and what is to become of such a state.
///
/// Those of a window that was last charged in the same segment, and those of a bucket with the same interval that was not
/// charged later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sure {
    /// As in `meter.sql`.
    pub(crate) kind: i64,
    /// How many numbers the state has.
    pub(crate) size: i64,
    /// The newest charge was no sooner
    pub(crate) since: i64,
    /// and no later.
    pub(crate) until: i64,
    /// The instant of the last of the charges.
    pub(crate) asked: i64,
    /// What they add.
    pub(crate) more: i64,
    /// The most that may be there before.
    pub(crate) room: i64,
    /// The microseconds for which the meter is kept, at least.
    pub(crate) keep: i64,
    /// What each carried unit counts; of a bucket its interval.
    pub(crate) share: f64,
}

impl Sure {
    /// No state at all.
    pub(crate) const NONE: Self =
        Self { kind: 0, size: 0, since: 1, until: 0, asked: 0, more: 0, room: -1, keep: 0, share: 0.0 };

    /// For slices of one claim each on one meter, in their order, decided by their callers' time. Meters are kept for
    /// `slack` microseconds more than they need.
    pub(crate) fn of<'s>(slices: impl Iterator<Item = &'s Slice> + Clone, slack: i64) -> Self {
        Self::all(slices, slack).unwrap_or(Self::NONE)
    }

    fn all<'s>(mut slices: impl Iterator<Item = &'s Slice> + Clone, slack: i64) -> Option<Self> {
        let mut sure = Self::one(slices.next()?, slack)?;
        for slice in slices {
            sure = sure.then(Self::one(slice, slack)?)?;
        }
        Some(sure)
    }

    fn one(slice: &Slice, slack: i64) -> Option<Self> {
        let ask = slice.asks.first()?;
        let asked = signed(slice.now.as_nanos());
        let [kind, cost, quota, gap, shift, carried, strict] = ask_numbers(ask);
        match ask.meter {
            Meter::Window(_) => {
                let begun = asked.checked_add(shift)?.checked_rem(gap)?;
                let left = gap.checked_sub(begun)?;
                let since = asked.checked_sub(begun)?;
                let until = asked.checked_add(left - 1).filter(|until| *until <= MAX_INSTANT)?;
                let kept = gap.checked_mul(carried)?.checked_add(left)?;
                Some(Self {
                    kind,
                    size: carried + 2,
                    since: since.max(0),
                    until,
                    asked,
                    more: cost,
                    room: quota.checked_sub(cost).filter(|room| *room >= 0)?,
                    keep: (kept / 1_000).checked_add(slack)?,
                    share: if strict == 1 { 1.0 } else { left as f64 / gap as f64 * MARGIN },
                })
            }
            Meter::Bucket(_) => Some(Self {
                kind,
                size: 3,
                since: 0,
                until: asked,
                asked,
                more: carried,
                // Less than no room is what costs more than the bucket holds.
                room: asked.checked_add(shift).filter(|_| shift >= 0)?,
                keep: (carried / 1_000 + 1).checked_add(slack)?,
                share: if gap < EXACT { gap as f64 } else { return None },
            }),
            Meter::Log(_) => None,
        }
    }

    /// These charges, and then this one on the same meter.
    fn then(self, next: Self) -> Option<Self> {
        // With windows of one segment and one limit nothing but the sum counts. Instants ascend, so that each charge is at its
        // own, whatever was there before.
        let alike = self.kind == 0
            && (self.since, self.size) == (next.since, next.size)
            && self.room.checked_add(self.more) == next.room.checked_add(next.more)
            && self.asked <= next.asked
            && (self.share == 1.0) == (next.share == 1.0);
        let more = self.more.checked_add(next.more).filter(|more| *more <= MAX_UNITS as i64)?;
        Some(Self {
            until: self.until.min(self.asked),
            asked: next.asked,
            more,
            room: self.room.checked_sub(next.more).filter(|room| alike && *room >= 0)?,
            keep: next.keep,
            ..self
        })
    }

    /// As they travel, without the share.
    pub(crate) fn numbers(&self) -> [i64; 8] {
        [self.kind, self.size, self.since, self.until, self.asked, self.more, self.room, self.keep]
    }
}
