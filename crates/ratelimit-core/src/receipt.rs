//! Receipts of charges.

use std::fmt;
use std::time::Duration;

use crate::Timestamp;

/// The longest wait that a caller takes from a fallback's refusal, because the first store may answer again at any moment.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a refund needs to find a charge again: [`Verdict::receipt`](crate::store::Verdict::receipt).
///
/// For a meter it is an instant. A receipt of a [`Fallback`](crate::layers::Fallback) also says which of its two stores has
/// charged: a refund must not go to the other one, where it would return units that another request has charged. The layer
/// removes that before the receipt reaches a store, so a store need not know of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receipt(u64);

/// The bit that a receipt of the second store has. No instant has it: [`Timestamp::MAX`] plus the longest debt is below
/// 2<sup>63</sup> ns.
const OF_FALLBACK: u64 = 1 << 63;

impl Receipt {
    /// The receipt of a charge that a meter finds by this instant.
    #[inline]
    pub const fn at(instant: Timestamp) -> Self {
        Self(instant.as_nanos())
    }

    /// The instant by which the meter finds the charge.
    #[inline]
    pub const fn instant(self) -> Timestamp {
        Timestamp::derived(self.0 & !OF_FALLBACK)
    }

    /// Whether the second store of a [`Fallback`](crate::layers::Fallback) has charged.
    #[inline]
    pub const fn is_of_fallback(self) -> bool {
        self.0 & OF_FALLBACK != 0
    }

    /// The same receipt, of the second store of a fallback.
    #[must_use]
    pub const fn of_fallback(self) -> Self {
        Self(self.0 | OF_FALLBACK)
    }

    /// The same receipt, without the store that has charged: as that store knows it.
    #[must_use]
    pub const fn for_store(self) -> Self {
        Self::at(self.instant())
    }

    /// The receipt of the same store with another instant.
    pub(crate) const fn moved_to(self, instant: Timestamp) -> Self {
        Self(instant.as_nanos() | self.0 & OF_FALLBACK)
    }

    /// All of it as a number, for [`from_bits`](Self::from_bits).
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Reads back what [`to_bits`](Self::to_bits) has returned.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = if self.is_of_fallback() { " of the fallback" } else { "" };
        write!(f, "Receipt({:?}{store})", self.instant())
    }
}
