//! The bytes of a key: the parts that a request is counted by, encoded so that different parts never collide.

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::ClientNetwork;

/// The maximum length of a part that is stored as it is. A longer one is stored as its SHA-256, so clients cannot make keys long.
const MOST: u8 = 64;

/// Stands where the length of a part would be, before the hash of a long part.
const LONG: u8 = 0xff;
/// Stands there before the hash of a secret.
const SECRET: u8 = 0xfe;
/// Stands there if a part is missing, and all requests without it are counted together.
const ABSENT: u8 = 0xfd;

/// A key that is being built. Most fit without an allocation.
#[derive(Clone)]
pub(crate) struct KeyBytes(SmallVec<[u8; 48]>);

impl KeyBytes {
    /// An empty key.
    #[inline]
    pub(crate) fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Starts a key with the prefix of its policy.
    #[inline]
    pub(crate) fn begin_with(&mut self, beginning: &Self) {
        self.0 = SmallVec::from_slice(&beginning.0);
    }

    /// A key of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Appends a part with its length in front, or its hash if it is long.
    #[inline]
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(length) if length <= MOST => {
                self.0.push(length);
                self.0.extend_from_slice(bytes);
            }
            _ => self.hash_of_long_part(&Sha256::digest(bytes).into()),
        }
    }

    /// Appends a network as a part.
    pub(crate) fn network(&mut self, network: &ClientNetwork) {
        match *network.as_ref() {
            // Eight bytes, of which two are spare, so that hashing the key reads them in one piece.
            [a, b, c, d, prefix] => self.0.extend_from_slice(&[7, a, b, c, d, prefix, 0, 0]),
            ref ipv6 => self.part(ipv6),
        }
    }

    /// Appends a secret: only its hash reaches a store.
    pub(crate) fn secret(&mut self, bytes: &[u8]) {
        self.hash_of_secret(&Sha256::digest(bytes).into());
    }

    /// Appends a secret of which only the hash is known.
    pub(crate) fn hash_of_secret(&mut self, hash: &[u8; 32]) {
        self.0.push(SECRET);
        self.0.extend_from_slice(hash);
    }

    /// Appends a long part of which only the hash is known.
    #[inline(never)]
    pub(crate) fn hash_of_long_part(&mut self, hash: &[u8; 32]) {
        self.0.push(LONG);
        self.0.extend_from_slice(hash);
    }

    /// Appends a marker for a missing part.
    pub(crate) fn absent(&mut self) {
        self.0.push(ABSENT);
    }

    /// Appends one byte for the alternative that was chosen.
    pub(crate) fn choice(&mut self, index: u8) {
        self.0.push(index);
    }

    /// Removes everything after this length.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A part that is read back.
pub(crate) enum Part<'a> {
    /// Its bytes.
    Plain(&'a [u8]),
    /// The SHA-256 of a long part or of a secret.
    Hash(&'a [u8]),
    /// It is missing.
    Absent,
}

impl<'a> Part<'a> {
    /// Splits off the first part of a key.
    pub(crate) fn split_off(key: &mut &'a [u8]) -> Option<Self> {
        Some(match *key.split_off_first()? {
            length @ ..=MOST => Self::Plain(key.split_off(..usize::from(length))?),
            LONG | SECRET => Self::Hash(key.split_off(..32)?),
            ABSENT => Self::Absent,
            _ => return None,
        })
    }
}

impl AsRef<[u8]> for KeyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grouping, TrustedProxies};
    use proptest::prelude::*;

    fn key(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut key = KeyBytes::new();
        parts.iter().for_each(|part| key.part(part));
        key.as_ref().to_vec()
    }

    proptest! {
        #[test]
        fn different_parts_are_different_keys(
            a in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..4),
            b in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..4),
        ) {
            prop_assert_eq!(a == b, key(&a) == key(&b));
        }
    }

    #[test]
    fn an_ipv4_network_is_one_key_however_its_address_is_written() {
        let proxies = TrustedProxies::none().with_grouping(Grouping { ipv4_prefix: 24, ipv6_prefix: 64 });
        let mut keys = std::collections::HashSet::new();
        for peer in ["192.0.2.1", "192.0.2.200", "::ffff:192.0.2.7"] {
            let mut key = KeyBytes::new();
            key.network(&proxies.group(peer.parse().unwrap()));
            keys.insert(key.as_ref().to_vec());
        }
        assert_eq!(keys, [vec![7, 192, 0, 2, 0, 24, 0, 0]].into());
    }

    #[test]
    fn a_key_is_short_however_long_its_parts_are() {
        let long = vec![b'x'; 5 << 20];
        assert_eq!(key(&[long.clone(), long]).len(), 66);
        assert_eq!(key(&[vec![b'x'; 64]]).len(), 65);
        assert_eq!(key(&[vec![b'x'; 65]]).len(), 33);
    }

    #[test]
    fn forged_hashes_are_different_keys() {
        let long = vec![b'x'; 100];
        let mut forged = vec![LONG];
        forged.extend_from_slice(&Sha256::digest(&long));
        assert_ne!(key(std::slice::from_ref(&long)), key(std::slice::from_ref(&forged)));
        assert_ne!(key(&[long]), key(&[forged[1..].to_vec()]));
        let mut secret = KeyBytes::new();
        secret.secret(b"token");
        assert!(!secret.as_ref().windows(5).any(|window| window == b"token"));
    }
}
