//! The result of a charge.

use crate::{Receipt, Timestamp};

/// The result of a charge, for the answer and for a later refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// What [`Meter::refund`](crate::meter::Meter::refund) needs to find this charge again.
    pub receipt: Receipt,
    /// When the charged units may be used: at the instant of the claim, or in a leaky queue when their turn comes.
    pub ready_at: Timestamp,
}
