//! Modes of a claim: charge, peek, force.

/// What a store does with the claims that it has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Charge them if all fit.
    Charge,
    /// Decide, and write nothing.
    Peek,
    /// Charge them whether they fit or not, for what has already been used. The answer is always "admitted".
    Force,
}
