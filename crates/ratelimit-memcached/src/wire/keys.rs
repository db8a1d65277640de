//! Names of meters as Memcached keys: readable if possible, injective, at most 250 bytes including a segment's number.

use std::fmt::Write as _;

use ratelimit_core::store::MeterId;
use sha2::{Digest, Sha256};

/// The longest name without its suffixes: a segment's number with its separator, at most twenty characters, and the mark of
/// a reset with its separator.
const LONGEST: usize = 250 - 20 - 1 - MARK;

/// The length of a reset's mark.
pub(crate) const MARK: usize = 16;

/// The 64 digits of URL-safe base64.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// `<prefix>!<namespace>!<scope>!<key>`, or `<prefix>#<digest>` if that is too long.
///
/// In the three parts all bytes but visible ASCII, and `!` and `%`, are written as `%XX`. The first `!` or `#` after the
/// prefix shows which form it is, and no two meters have the same name. Not a
/// [`bounded_name`](ratelimit_store_kit::bounded_name), because keys are visible ASCII.
pub(crate) fn name_of(prefix: &str, id: &MeterId<'_>) -> String {
    let mut name = String::with_capacity(LONGEST);
    name.push_str(prefix);
    for part in [id.namespace.as_bytes(), id.scope.as_bytes(), id.key] {
        name.push('!');
        if !escape(&mut name, part) {
            return format!("{prefix}#{}", digest(&id.to_bytes()));
        }
    }
    name
}

/// The name of the item that counts one segment of a window.
pub(crate) fn segment_of(name: &str, index: u64) -> String {
    let mut digits = itoa::Buffer::new();
    [name, "!", digits.format(index)].concat()
}

/// The name of the item that counts a segment after the reset with this mark.
pub(crate) fn since_reset(segment: &str, mark: &str) -> String {
    [segment, "!", mark].concat()
}

/// Returns `false` once the name has become too long.
fn escape(name: &mut String, part: &[u8]) -> bool {
    for byte in part {
        if byte.is_ascii_graphic() && !b"!%".contains(byte) {
            name.push(char::from(*byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02X}");
        }
        if name.len() > LONGEST {
            return false;
        }
    }
    name.len() <= LONGEST
}

/// SHA-256 in 43 characters.
fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let sextet = |nth: usize| {
        let bit = nth * 6;
        let pair = u16::from_be_bytes([hash[bit / 8], hash.get(bit / 8 + 1).copied().unwrap_or(0)]);
        char::from(DIGITS[usize::from(pair >> (10 - bit % 8) & 63)])
    };
    (0..43).map(sextet).collect()
}

/// The initial value of a hash.
pub(crate) const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// A hash that is the same in every process and release (FNV-1a with a final mix): it assigns meters to servers.
pub(crate) fn stable_hash(bytes: &[u8], start: u64) -> u64 {
    mix(bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)))
}

/// Mixes the bits of a hash.
pub(crate) fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(namespace: &str, scope: &str, key: &[u8]) -> String {
        name_of("rl", &MeterId { namespace, scope, key })
    }

    #[test]
    fn names_are_readable_and_do_not_change() {
        assert_eq!(name("api", "sliding:60s", b"user:7"), "rl!api!sliding:60s!user:7");
        assert_eq!(name("", "log", b""), "rl!!log!");
        assert_eq!(name("#", "log", b"a b\x00!\xff%"), "rl!#!log!a%20b%00%21%FF%25");
        assert_eq!(segment_of("rl!!fixed:1s!a", 7), "rl!!fixed:1s!a!7");
        assert_eq!(since_reset("rl!!fixed:1s!a!7", "0f"), "rl!!fixed:1s!a!7!0f");
        // SHA-256 of "0:3:log" and 214 times "x", in URL-safe base64.
        assert_eq!(name("", "log", &[b'x'; 214]).len(), 3 + 43);
        assert_eq!(digest(b"abc"), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
    }

    #[test]
    fn the_longest_names_fit_a_key() {
        let mark = "f".repeat(MARK);
        let longest = |name: &str| since_reset(&segment_of(name, u64::MAX / 1_000), &mark).len();
        for length in 0..300 {
            let name = name("n", "scope", &vec![b'x'; length]);
            assert!(longest(&name) <= 250, "{length}: {}", longest(&name));
        }
        assert!(longest(&name("", "log", &vec![0; 100_000])) <= 250);
    }

    #[test]
    fn the_hash_does_not_change() {
        // It assigns meters to servers: a change would reset those of every store on several servers.
        assert_eq!(stable_hash(b"user:7", OFFSET), 0xe1ad_aa0a_6ddf_082e);
    }

    proptest! {
        #[test]
        fn different_meters_have_different_keys(
            a in ("[!#%a0-9]{0,4}", "[!#%a0-9]{1,4}", prop::collection::vec(any::<u8>(), 0..6), prop::option::of(0u64..20)),
            b in ("[!#%a0-9]{0,4}", "[!#%a0-9]{1,4}", prop::collection::vec(any::<u8>(), 0..6), prop::option::of(0u64..20)),
        ) {
            let key = |(namespace, scope, key, segment): &(String, String, Vec<u8>, Option<u64>)| {
                let name = name(namespace, scope, key);
                segment.map_or(name.clone(), |index| segment_of(&name, index))
            };
            prop_assert_eq!(a == b, key(&a) == key(&b));
        }

        #[test]
        fn keys_are_visible_ascii_without_spaces(namespace: String, key: Vec<u8>) {
            let name = name(&namespace, "log", &key);
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_graphic()) && name.len() <= LONGEST);
        }
    }
}
