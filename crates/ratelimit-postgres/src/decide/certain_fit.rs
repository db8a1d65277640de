//! The states of a meter that charges certainly fit, computed before the state is known. See `take.sql`.

use ratelimit_core::meter::{MAX_UNITS, Meter};

use crate::wire::claims::{OwnedClaims, claim_numbers, signed};

/// The latest instant of a state.
const MAX_INSTANT: i64 = (1 << 62) - 1;

/// Integers below this are exact as floating-point numbers.
const EXACT: i64 = 1 << 53;

/// A share is multiplied by this, which is more than its rounding error.
const MARGIN: f64 = 1.0 + f64::EPSILON * 16.0;

/// The states of a meter on which a sequence of charges certainly fits as a whole, and how the charges change such a state.
///
/// These are states of a window whose newest charge was in the segment of these charges, and of a bucket with the same
/// interval whose newest charge was not later than these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CertainFit {
    /// As in `meter.sql`.
    pub(crate) kind: i64,
    /// The number of numbers in the state.
    pub(crate) size: i64,
    /// The earliest instant of the newest charge in such a state.
    pub(crate) since: i64,
    /// The latest instant of the newest charge in such a state.
    pub(crate) until: i64,
    /// The instant of the last of these charges.
    pub(crate) claimed_at: i64,
    /// The sum of these charges.
    pub(crate) more: i64,
    /// The maximum that such a state may contain: units of a window, the arrival time of a bucket.
    pub(crate) room: i64,
    /// The minimum time for which the meter is kept, in microseconds.
    pub(crate) keep: i64,
    /// The weight of each carried unit; for a bucket its interval.
    pub(crate) share: f64,
}

impl CertainFit {
    /// Matches no state.
    pub(crate) const NONE: Self =
        Self { kind: 0, size: 0, since: 1, until: 0, claimed_at: 0, more: 0, room: -1, keep: 0, share: 0.0 };

    /// For slices of one claim each on one meter, in their order, decided at their callers' time. Meters are kept for
    /// `slack` microseconds longer than needed.
    pub(crate) fn of<'s>(slices: impl Iterator<Item = &'s OwnedClaims> + Clone, slack: i64) -> Self {
        Self::all(slices, slack).unwrap_or(Self::NONE)
    }

    fn all<'s>(mut slices: impl Iterator<Item = &'s OwnedClaims> + Clone, slack: i64) -> Option<Self> {
        let mut certain = Self::one(slices.next()?, slack)?;
        for slice in slices {
            certain = certain.then(Self::one(slice, slack)?)?;
        }
        Some(certain)
    }

    fn one(slice: &OwnedClaims, slack: i64) -> Option<Self> {
        let claim = slice.claims.first()?;
        let claimed_at = signed(slice.now.as_nanos());
        let [kind, cost, quota, gap, shift, carried, strict] = claim_numbers(claim);
        match claim.meter {
            Meter::Window(_) => {
                let begun = claimed_at.checked_add(shift)?.checked_rem(gap)?;
                let left = gap.checked_sub(begun)?;
                let since = claimed_at.checked_sub(begun)?;
                let until = claimed_at.checked_add(left - 1).filter(|until| *until <= MAX_INSTANT)?;
                let kept = gap.checked_mul(carried)?.checked_add(left)?;
                Some(Self {
                    kind,
                    size: carried + 2,
                    since: since.max(0),
                    until,
                    claimed_at,
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
                until: claimed_at,
                claimed_at,
                more: carried,
                // A negative room: the cost exceeds the burst.
                room: claimed_at.checked_add(shift).filter(|_| shift >= 0)?,
                keep: (carried / 1_000 + 1).checked_add(slack)?,
                share: if gap < EXACT { gap as f64 } else { return None },
            }),
            Meter::Log(_) => None,
        }
    }

    /// These charges followed by another one on the same meter.
    fn then(self, next: Self) -> Option<Self> {
        // For windows of the same segment and limit only the sum matters. Instants ascend, so that each charge is made at
        // its own instant, whatever was charged before.
        let alike = self.kind == 0
            && (self.since, self.size) == (next.since, next.size)
            && self.room.checked_add(self.more) == next.room.checked_add(next.more)
            && self.claimed_at <= next.claimed_at
            && (self.share == 1.0) == (next.share == 1.0);
        let more = self.more.checked_add(next.more).filter(|more| *more <= MAX_UNITS as i64)?;
        Some(Self {
            until: self.until.min(self.claimed_at),
            claimed_at: next.claimed_at,
            more,
            room: self.room.checked_sub(next.more).filter(|room| alike && *room >= 0)?,
            keep: next.keep,
            ..self
        })
    }

    /// The encoding as arguments, without the share.
    pub(crate) fn numbers(&self) -> [i64; 8] {
        [self.kind, self.size, self.since, self.until, self.claimed_at, self.more, self.room, self.keep]
    }
}
