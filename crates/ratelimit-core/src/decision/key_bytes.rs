//! The bytes of keys, as decisions keep them for refunds.

use smallvec::SmallVec;

/// How many bytes of a key a decision has in place.
const LONGEST_IN_PLACE: usize = 48;

/// A key's bytes.
pub(crate) type KeyBytes = SmallVec<[u8; LONGEST_IN_PLACE]>;

/// The keys that a decision has charged; empty if it has charged nothing.
pub(crate) type ChargedKeys = SmallVec<[KeyBytes; 1]>;

/// A key of up to 48 bytes, in place.
#[derive(Clone, Copy)]
pub(crate) struct ShortKey {
    bytes: [u8; LONGEST_IN_PLACE],
    length: usize,
}

impl ShortKey {
    /// Copies a key. Returns `None` if it is too long.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_IN_PLACE];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        Some(Self { bytes, length: key.len() })
    }

    /// The key.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_keys_of_any_length_round_trip() {
        let key: Vec<u8> = (1..=49).collect();
        for length in 0..=48 {
            assert_eq!(*ShortKey::of(&key[..length]).unwrap().bytes(), key[..length]);
        }
        assert!(ShortKey::of(&key[..49]).is_none());
    }
}
