//! Receipts that say which of two stores has charged: a fallback marks its own.
//!
//! A refund needs the receipt to find the charge again. With a [`Fallback`](crate::layers::Fallback), it also needs to
//! know the store: a refund of units that the fallback has charged must not go to the other store, where it would return
//! units that another request has charged. The mark is the highest bit, which no instant has: [`Timestamp::MAX`] plus the
//! longest debt is below 2<sup>63</sup> ns. The layer removes the mark before a receipt reaches a store, so no store has
//! to know of it.

use std::time::Duration;

use crate::Timestamp;

/// The longest wait that a caller takes from a fallback's refusal, because the first store may answer again at any moment.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(1);

const MARK: u64 = 1 << 63;

/// Marks a receipt as one of the fallback.
pub(crate) const fn marked(receipt: Timestamp) -> Timestamp {
    Timestamp::derived(receipt.as_nanos() | MARK)
}

/// Whether this is the receipt of a charge on the fallback.
pub(crate) const fn is_marked(receipt: Timestamp) -> bool {
    receipt.as_nanos() & MARK != 0
}

/// Removes the mark.
pub(crate) const fn unmarked(receipt: Timestamp) -> Timestamp {
    Timestamp::derived(receipt.as_nanos() & !MARK)
}
