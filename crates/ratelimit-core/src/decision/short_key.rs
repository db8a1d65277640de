//! A key that a decision keeps for a refund.

use smallvec::SmallVec;

/// A key's bytes.
pub(crate) type KeyBytes = SmallVec<[u8; 48]>;

/// The keys that a decision has charged; empty if it has charged nothing.
pub(crate) type ChargedKeys = SmallVec<[KeyBytes; 1]>;

/// A key of up to 48 bytes, stored as words from both ends that overlap in the middle.
///
/// Each admitted check copies its key. So the copy is a few whole words, without a call or a loop; the bytes are put
/// together from them only if the key is needed again.
#[derive(Clone, Copy)]
pub(crate) struct ShortKey {
    length: usize,
    words: [u64; 6],
}

impl ShortKey {
    /// Returns `None` if the key is too long.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        let length = key.len();
        let at = |place| word(key, place);
        let words = match length {
            0..=7 => [few(key), 0, 0, 0, 0, 0],
            8..=16 => [at(0), 0, 0, 0, 0, at(length - 8)],
            17..=32 => [at(0), at(8), 0, 0, at(length - 16), at(length - 8)],
            33..=48 => [at(0), at(8), at(16), at(24), at(length - 16), at(length - 8)],
            _ => return None,
        };
        Some(Self { length, words })
    }

    pub(super) fn bytes(&self) -> KeyBytes {
        let Self { length, words } = *self;
        let words = words.map(u64::to_le_bytes);
        let bytes = words.as_flattened();
        let front = match length {
            0..=7 => length,
            8..=16 => 8,
            17..=32 => 16,
            _ => 32,
        };
        let mut key = KeyBytes::from_slice(&bytes[..front]);
        // The rest is at the end of the last words.
        key.extend_from_slice(&bytes[bytes.len() - (length - front)..]);
        key
    }
}

/// The eight bytes that begin at `place`.
#[inline]
fn word(key: &[u8], place: usize) -> u64 {
    let bytes = key.get(place..).and_then(|rest| rest.first_chunk());
    bytes.copied().map_or(0, u64::from_le_bytes)
}

/// Up to seven bytes.
#[inline]
fn few(key: &[u8]) -> u64 {
    let last = key.len().saturating_sub(1);
    match (key.first_chunk(), key.last_chunk()) {
        (Some(first), Some(end)) => {
            let [first, end] = [first, end].map(|four| u64::from(u32::from_le_bytes(*four)));
            first | end << (8 * (key.len() - 4))
        }
        _ => {
            let byte = |place: usize| key.get(place).map_or(0, |byte| u64::from(*byte) << (8 * place));
            byte(0) | byte(last / 2) | byte(last)
        }
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
