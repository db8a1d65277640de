//! The bytes of keys, as decisions keep them for refunds.

use smallvec::SmallVec;

/// How many bytes of a key a decision has in place.
pub(super) const LONGEST_IN_PLACE: usize = 48;

/// A key's bytes.
pub(crate) type KeyBytes = SmallVec<[u8; LONGEST_IN_PLACE]>;

/// The keys that a decision has charged; empty if it has charged nothing.
pub(crate) type ChargedKeys = SmallVec<[KeyBytes; 1]>;
