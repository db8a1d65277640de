//! Answers: what a store says.

use smallvec::SmallVec;

use crate::Timestamp;

/// What a store says of a slice of claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the slice fits as a whole.
    pub admitted: bool,
    /// Whether it was charged: it was admitted and not just peeked at.
    pub charged: bool,
    /// The time that the store used: the caller's, or the server's own.
    pub now: Timestamp,
    /// One verdict for each claim, in their order.
    pub verdicts: Verdicts,
}

/// The verdicts of a slice; on the stack for up to four.
pub type Verdicts = SmallVec<[Verdict; 4]>;

/// What a store says of one claim. Made by [`Meter::verdict`](crate::Meter::verdict) for every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether this claim alone fits. A slice is admitted iff all of its claims fit.
    pub fits: bool,
    /// The most units that can ever be taken at once.
    pub limit: u64,
    /// Units that could be taken now, after this decision.
    pub remaining: u64,
    /// The earliest instant at which this cost would fit if nobody else came; `None` if it never would.
    pub fits_at: Option<Timestamp>,
    /// The instant from which the meter is as new if nobody comes.
    pub reset_at: Timestamp,
    /// When the units may be used: the instant of the decision, or later in a leaky queue.
    pub ready_at: Timestamp,
    /// What a refund needs to find this charge again.
    pub receipt: Timestamp,
}
