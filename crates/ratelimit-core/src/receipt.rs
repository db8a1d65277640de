//! Receipts that say which of two stores has charged: a fallback marks its own.
//!
//! A receipt is what a refund needs to find a charge again. With a [`Fallback`](crate::layers::Fallback) this includes the
//! store: units that the fallback has charged must not be returned to the other store, which would give away units that
//! somebody else has charged there. The mark is the highest bit, which no instant has: [`Timestamp::MAX`] plus the longest
//! debt is below 2<sup>63</sup> ns. Only the layer sees the mark and removes it, so no store has to know of it.

use crate::Timestamp;

const MARK: u64 = 1 << 63;

/// The receipt of a charge of the fallback.
pub(crate) const fn marked(receipt: Timestamp) -> Timestamp {
    Timestamp::derived(receipt.as_nanos() | MARK)
}

/// Whether the fallback has charged.
pub(crate) const fn is_marked(receipt: Timestamp) -> bool {
    receipt.as_nanos() & MARK != 0
}

/// The receipt as the store that charged has made it.
pub(crate) const fn unmarked(receipt: Timestamp) -> Timestamp {
    Timestamp::derived(receipt.as_nanos() & !MARK)
}
