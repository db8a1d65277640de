//! A claim on a meter whose place in the store is known.

use ratelimit_core::{Claim, Meter, Mode, Timestamp};

/// A claim without its meter's name, which is not needed after the search for the meter.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'m> {
    pub(crate) cost: u64,
    pub(crate) meter: &'m Meter,
    pub(crate) now: Timestamp,
    pub(crate) mode: Mode,
}

impl<'m> Demand<'m> {
    pub(crate) fn new(claim: &'m Claim<'_>, now: Timestamp, mode: Mode) -> Self {
        Self { cost: claim.cost, meter: &claim.meter, now, mode }
    }

    /// Whether it charges its meter if it is admitted.
    #[inline]
    pub(crate) fn charges(&self) -> bool {
        self.cost > 0 && self.mode != Mode::Peek
    }

    /// Whether it fits a meter that was never charged.
    #[inline]
    pub(crate) fn fits_fresh(&self) -> bool {
        self.mode == Mode::Force || self.cost <= self.meter.limit()
    }
}
