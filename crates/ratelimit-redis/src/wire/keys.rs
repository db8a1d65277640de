//! Names of meters as Redis keys: readable, injective, one slot for all limits of a key.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use percent_encoding::percent_decode;
use ratelimit_core::store::MeterId;
use sha2::{Digest, Sha256};

/// A namespace and a key that together are longer than this many bytes are replaced by a digest.
const LONGEST: usize = 200;

/// `<prefix>{<namespace>:<key>}<scope>`.
///
/// The part in braces, which decides the slot on a cluster, is never empty and contains no braces itself: `{`, `}` and `%`
/// are written as `%7B`, `%7D` and `%25`, and in the namespace `:` as `%3A`. A long one is `%=` followed by a digest, which
/// no short one can equal. Not a [`bounded_name`](ratelimit_store_kit::bounded_name), because a digest of the scope too would
/// spread the limits of one key over several slots.
pub(crate) fn key_of(prefix: &str, id: &MeterId<'_>) -> Vec<u8> {
    let MeterId { namespace, scope, key } = *id;
    let mut name =
        Vec::with_capacity(prefix.len() + namespace.len() + key.len().min(LONGEST) + scope.len() + 8);
    name.extend_from_slice(prefix.as_bytes());
    name.push(b'{');
    if namespace.len() + key.len() > LONGEST {
        name.extend_from_slice(digest(namespace, key).as_bytes());
    } else {
        escape(&mut name, namespace.as_bytes(), |byte| matches!(byte, b'{' | b'}' | b'%' | b':'));
        name.push(b':');
        escape(&mut name, key, |byte| matches!(byte, b'{' | b'}' | b'%'));
    }
    name.push(b'}');
    name.extend_from_slice(scope.as_bytes());
    name
}

/// A pattern for `SCAN`, which matches the meters of this key in all namespaces, and a few others. Not those whose names are
/// digests.
pub(crate) fn pattern_of(prefix: &str, key: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    escape(&mut escaped, key, |byte| matches!(byte, b'{' | b'}' | b'%'));
    let literal = |bytes: &[u8]| -> Vec<u8> {
        let special = |byte: u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'^' | b'-' | b'\\');
        bytes.iter().flat_map(|byte| special(*byte).then_some(b'\\').into_iter().chain([*byte])).collect()
    };
    [&literal(prefix.as_bytes())[..], b"{*:", &literal(&escaped), b"}*"].concat()
}

/// What a key of the server turns out to be.
pub(crate) enum StoredKey {
    /// A meter with this namespace, scope and key.
    Meter { namespace: String, scope: String, key: Vec<u8> },
    /// A meter whose namespace and key were replaced by a digest.
    Digest,
    /// Not a meter under this prefix.
    Other,
}

impl StoredKey {
    /// Reads back what [`key_of`] has returned.
    pub(crate) fn read(prefix: &str, name: &[u8]) -> Self {
        Self::parts(prefix, name).unwrap_or(Self::Other)
    }

    fn parts(prefix: &str, name: &[u8]) -> Option<Self> {
        let rest = name.strip_prefix(prefix.as_bytes())?.strip_prefix(b"{")?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        let (inside, scope) = (&rest[..close], str::from_utf8(&rest[close + 1..]).ok()?);
        if scope.is_empty() {
            return None;
        }
        if let Some(digits) = inside.strip_prefix(b"%=") {
            return (digits.len() == 64).then_some(Self::Digest);
        }
        let colon = inside.iter().position(|byte| *byte == b':')?;
        let namespace = String::from_utf8(percent_decode(&inside[..colon]).collect()).ok()?;
        let key: Vec<u8> = percent_decode(&inside[colon + 1..]).collect();
        // Only what this crate would write is one of its keys.
        let is_own = key_of(prefix, &MeterId { namespace: &namespace, scope, key: &key }) == name;
        is_own.then(|| Self::Meter { namespace, scope: scope.to_owned(), key })
    }
}

fn digest(namespace: &str, key: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update((namespace.len() as u64).to_be_bytes());
    hash.update(namespace.as_bytes());
    hash.update(key);
    let mut text = String::from("%=");
    for byte in hash.finalize() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn escape(name: &mut Vec<u8>, bytes: &[u8], special: impl Fn(u8) -> bool) {
    // Checking every byte is faster than stopping at the first match.
    if !bytes.iter().fold(false, |found, byte| found | special(*byte)) {
        name.extend_from_slice(bytes);
        return;
    }
    for byte in bytes {
        if special(*byte) {
            name.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            name.push(*byte);
        }
    }
}

/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16_384;

/// The slot of a cluster that `key` belongs to: CRC16 (XMODEM) of the hash tag, or of the whole key if it has none.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

/// The items of each slot, in their order.
pub(crate) fn by_slot<T>(items: impl IntoIterator<Item = (u16, T)>) -> Vec<Vec<T>> {
    let mut slots = BTreeMap::<u16, Vec<T>>::new();
    for (slot, item) in items {
        slots.entry(slot).or_default().push(item);
    }
    slots.into_values().collect()
}

#[cfg(test)]
mod tests;
