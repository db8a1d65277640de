//! Keys identify clients. They are opaque bytes, joined and encoded so that two different keys never become equal.

use std::fmt;

/// Several key parts joined into one key without ambiguity.
///
/// A key is any bytes (`&str`, `&[u8]`, …). Joining several parts with a separator invites collisions: `("a/b", "c")`
/// and `("a", "b/c")` would be one client. `Key::of` writes the length of each part before it, so different parts are
/// always different keys.
///
/// ```
/// use ratelimit_core::Key;
///
/// assert_ne!(Key::of(["a/b", "c"]), Key::of(["a", "b/c"]));
/// assert_ne!(Key::of(["user", "7"]), Key::of(["ip", "7"]));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// Joins these parts, in this order, into a key.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut bytes = Vec::new();
        for part in parts {
            write_part(&mut bytes, part.as_ref());
        }
        Self(bytes)
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    /// Keys identify people: shows only the length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// The name of a meter: which client (`key`) is counted under which limit (`scope`) of which limiter (`namespace`).
///
/// A store needs a distinct name for each meter. The name must depend on all three fields, and two different triples
/// must never get the same name: hash all of them, or store [`MeterId::to_bytes`]. The program chooses `scope` and
/// `namespace`, which are short; `key` may be anything that a client sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeterId<'a> {
    /// The limiter's namespace: any text, usually ASCII; may be empty.
    pub namespace: &'a str,
    /// The part that comes from the limit: see [`Limit::scope`](crate::Limit::scope). ASCII, never empty.
    pub scope: &'a str,
    /// Identifies the client: any bytes, of any length.
    pub key: &'a [u8],
}

impl<'a> MeterId<'a> {
    /// Returns one byte string that names this meter and no other. [`from_bytes`](Self::from_bytes) reads it back.
    ///
    /// ```
    /// use ratelimit_core::store::MeterId;
    ///
    /// let id = MeterId { namespace: "api", scope: "sliding:60s", key: b"user:7" };
    /// assert_eq!(id.to_bytes(), b"3:api11:sliding:60suser:7");
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.namespace.len() + self.scope.len() + self.key.len() + 8);
        write_part(&mut bytes, self.namespace.as_bytes());
        write_part(&mut bytes, self.scope.as_bytes());
        bytes.extend_from_slice(self.key);
        bytes
    }

    /// Reads back what [`to_bytes`](Self::to_bytes) has returned; `None` if it is something else. For a store that can
    /// list its meters.
    ///
    /// ```
    /// use ratelimit_core::store::MeterId;
    ///
    /// let id = MeterId::from_bytes(b"3:api11:sliding:60suser:7").ok_or("not a meter")?;
    /// assert_eq!((id.namespace, id.scope, id.key), ("api", "sliding:60s", &b"user:7"[..]));
    /// # Ok::<(), &str>(())
    /// ```
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (namespace, rest) = read_part(bytes)?;
        let (scope, key) = read_part(rest).filter(|(scope, _)| !scope.is_empty())?;
        Some(Self { namespace: str::from_utf8(namespace).ok()?, scope: str::from_utf8(scope).ok()?, key })
    }
}

impl fmt::Debug for MeterId<'_> {
    /// Keys identify people: shows only the key's length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeterId({:?}, {:?}, key of {} bytes)", self.namespace, self.scope, self.key.len())
    }
}

/// Appends `part` with its length in front, so that its end is known whatever it contains.
fn write_part(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(part.len().to_string().as_bytes());
    bytes.push(b':');
    bytes.extend_from_slice(part);
}

/// Splits off the part that [`write_part`] has written. Its length has no other form: no sign, no leading zero.
fn read_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let (digits, rest) = (str::from_utf8(&bytes[..colon]).ok()?, &bytes[colon + 1..]);
    let length: usize = digits.parse().ok()?;
    if length.to_string() != digits {
        return None;
    }
    rest.split_at_checked(length)
}

/// A hash of a key that is the same in every process, release and store (FNV-1a, 64 bits, with a final mix).
///
/// It chooses where the windows of staggered limits begin. It is not keyed, so do not use it for anything that must
/// resist an attacker.
pub(crate) fn stable_hash(key: &[u8]) -> u64 {
    let fnv = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn different_parts_are_different_keys(a: Vec<Vec<u8>>, b: Vec<Vec<u8>>) {
            prop_assert_eq!(a == b, Key::of(&a) == Key::of(&b));
        }

        #[test]
        fn different_ids_have_different_bytes(
            a in ("[0-9:a]{0,4}", "[0-9:a]{1,4}", "[0-9:a]{0,4}"),
            b in ("[0-9:a]{0,4}", "[0-9:a]{1,4}", "[0-9:a]{0,4}"),
        ) {
            let bytes = |(namespace, scope, key): &(String, String, String)| {
                MeterId { namespace, scope, key: key.as_bytes() }.to_bytes()
            };
            prop_assert_eq!(a == b, bytes(&a) == bytes(&b));
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back(namespace in "[ -~]{0,12}", scope in "[ -~]{1,12}", key: Vec<u8>) {
            let id = MeterId { namespace: &namespace, scope: &scope, key: &key };
            let bytes = id.to_bytes();
            prop_assert_eq!(MeterId::from_bytes(&bytes), Some(id));
        }

        #[test]
        fn only_a_name_is_read(bytes in prop::collection::vec(prop::sample::select(b"0123:+a\xff".to_vec()), 0..12)) {
            if let Some(id) = MeterId::from_bytes(&bytes) {
                prop_assert_eq!(id.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_key_is_its_parts_with_their_lengths() {
        // Stored meters are named by it.
        assert_eq!(Key::of(["user", "a/b"]).as_bytes(), b"4:user3:a/b");
    }

    #[test]
    fn debug_output_hides_the_key() {
        let id = MeterId { namespace: "n", scope: "s", key: b"secret" };
        assert!(!format!("{id:?} {:?}", Key::of(["secret"])).contains("secret"));
    }

    #[test]
    fn the_stable_hash_does_not_change() {
        // Stored windows depend on it: a change would move every staggered window of a running fleet.
        assert_eq!(stable_hash(b"user:7"), 0x6c84_28c2_fba5_70c9);
    }
}
