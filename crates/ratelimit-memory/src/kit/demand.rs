//! A claim on a meter whose place in the store is known.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Claim, Mode};

/// A claim without its meter's name, which is not needed after the search for the meter.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'m> {
    /// As [`Claim::cost`].
    pub cost: u64,
    /// As [`Claim::meter`].
    pub meter: &'m Meter,
    /// When it is made.
    pub now: Timestamp,
    /// Whether and how to charge.
    pub mode: Mode,
}

impl<'m> Demand<'m> {
    /// Leaves out the name.
    pub fn new(claim: &'m Claim<'_>, now: Timestamp, mode: Mode) -> Self {
        Self { cost: claim.cost, meter: &claim.meter, now, mode }
    }

    /// Whether it charges its meter if it is admitted.
    #[inline]
    pub fn charges(&self) -> bool {
        self.cost > 0 && self.mode != Mode::Peek
    }

    /// Whether it fits a meter that was never charged.
    #[inline]
    pub fn fits_fresh(&self) -> bool {
        self.mode == Mode::Force || self.cost <= self.meter.limit()
    }
}
