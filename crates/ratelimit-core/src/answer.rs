//! Answers: what a store returns.

use smallvec::SmallVec;

use crate::{Receipt, Timestamp};

/// A store's answer to a set of [`Claims`](crate::store::Claims).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the claims are admitted: each of them fits, or the charge was [forced](crate::store::Mode::Force).
    pub admitted: bool,
    /// Whether the store charged the claims. False after a refusal and after a [peek](crate::store::Mode::Peek).
    pub charged: bool,
    /// The time that the decision used: the caller's, or the server's own.
    pub now: Timestamp,
    /// One verdict for each claim, in their order.
    pub verdicts: Verdicts,
}

/// One verdict for each claim of an [`Answer`]; up to four are stored inline.
pub type Verdicts = SmallVec<[Verdict; 4]>;

/// A store's answer to one claim. Its figures are those of [`Meter::verdict`](crate::meter::Meter::verdict), whatever the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether this claim alone fits. Unless the charge is forced, a set of claims is admitted if and only if each of
    /// them fits.
    pub fits: bool,
    /// The most units that can ever be taken at once.
    pub limit: u64,
    /// Units that could be taken now, after this decision.
    pub remaining: u64,
    /// The earliest instant at which this cost fits if nothing else is charged; `None` if it never fits.
    pub fits_at: Option<Timestamp>,
    /// The instant from which the meter is as good as new if nothing else is charged; [`Timestamp::MAX`] if it never is.
    pub reset_at: Timestamp,
    /// When the units may be used: at the instant of the decision, or later in a leaky queue. After a refusal by a queue,
    /// when they might be used if there had been room.
    pub ready_at: Timestamp,
    /// What a refund needs to find this charge again. Opaque to callers: pass it on as it is.
    pub receipt: Receipt,
}
