//! Fingerprints of meters' names, keyed with secrets that no client knows.

use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::{SharedSeed, fast, quality};
use ratelimit_core::store::MeterId;

/// Identifies a meter without storing its name: two hashes of the name with unrelated secrets.
///
/// A slot stores 90 of the 128 bits; the shard and the tag depend on up to 24 more. With ten million meters, the
/// probability that two of them share the stored bits and the tag is 10<sup>-15</sup>.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint {
    /// Stored in a slot.
    pub low: u64,
    /// From the top: 26 bits that a slot stores as well, six spare bits, eight bits for the tag, eight spare bits, and 16
    /// bits for the shard.
    pub high: u64,
}

/// The bits of a slot's word that contain something else.
pub(super) const SCALE: u32 = 0x3f;

impl Fingerprint {
    /// The bits of the second hash that a slot stores, and that determine where a search begins. The lowest six bits are
    /// zero.
    #[inline]
    pub fn kept(self) -> u32 {
        (self.high >> 32) as u32 & !SCALE
    }

    /// Eight bits that are not among the stored ones; at least two.
    #[inline]
    pub fn tag(self) -> u64 {
        ((self.high >> 24) & 0xff).max(2)
    }

    /// The shard, of at most 2<sup>16</sup>, a power of two.
    #[inline]
    pub fn shard(self, shards: usize) -> usize {
        (self.high & 0xffff) as usize & (shards - 1)
    }
}

/// Computes the fingerprints of one store.
///
/// Clients choose keys. A client that could choose many keys with similar hashes would make the store slow; one that could
/// choose two keys with the same fingerprint would have them counted together. All seeds of foldhash are therefore
/// secret and different for each store. They come from the operating system's randomness, through std, which uses it for
/// its own maps. Without the seeds, collisions cannot be prepared. An attacker would need hashes or the order of keys to
/// compute the seeds, and neither is ever shown. foldhash does not claim to resist an attacker who can time single look-ups
/// to the nanosecond; over a network and behind a lock, nobody can. SipHash would resist even that, but takes several times
/// as long.
#[derive(Debug)]
#[repr(C)] // what each key needs is side by side
pub struct Fingerprints {
    /// The seed for a limit's name, and the value that distinguishes the two hashes of a key.
    own: [u64; 2],
    shared: [SharedSeed; 2],
}

impl Fingerprints {
    /// With secrets from the operating system.
    #[expect(clippy::new_without_default, reason = "each has secrets of its own")]
    pub fn new() -> Self {
        Self::of_secrets([(); 4].map(|()| random()))
    }

    /// With fixed secrets, for a test that must be repeatable.
    pub fn with_seed(seed: u64) -> Self {
        Self::of_secrets([seed, !seed, seed.rotate_left(16), !seed.rotate_left(16)])
    }

    fn of_secrets([name, key, low, high]: [u64; 4]) -> Self {
        Self { own: [name, key], shared: [low, high].map(SharedSeed::from_u64) }
    }

    /// The fingerprint of a meter's name.
    ///
    /// There are few namespaces and scopes, and no client chooses them, so one hash of them is the seed of both of the
    /// key's.
    #[inline(always)]
    pub fn of(&self, id: &MeterId<'_>) -> Fingerprint {
        let mut name = fast::FoldHasher::with_seed(self.own[0], &self.shared[0]);
        // Each part is mixed in after the previous state was rotated by the part's length, and then multiplied. This
        // marks where one part ends and the next begins.
        if !id.namespace.is_empty() {
            name.write(id.namespace.as_bytes());
        }
        name.write(id.scope.as_bytes());
        let name = name.finish();
        // All bits of this hash are compared, so none of them has to be of better quality than the others.
        let mut low = fast::FoldHasher::with_seed(name, &self.shared[0]);
        let mut high = quality::FoldHasher::with_seed(name ^ self.own[1], &self.shared[1]);
        low.write(id.key);
        high.write(id.key);
        Fingerprint { low: low.finish(), high: high.finish() }
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_hashes_with_its_own_secrets() {
        let id = MeterId { namespace: "", scope: "s", key: b"key" };
        let (one, other) = (Fingerprints::new(), Fingerprints::new());
        assert_eq!(one.of(&id), one.of(&id));
        assert_ne!(one.of(&id).low, other.of(&id).low);
        assert_ne!(one.of(&id).high, other.of(&id).high);
        let [same, again, different] = [7, 7, 8].map(|seed| Fingerprints::with_seed(seed).of(&id));
        assert_eq!(same, again);
        assert!(same.low != different.low && same.high != different.high);
    }

    /// Of the places of 64 shards, each divided by the six bits with which a search begins.
    #[test]
    #[cfg_attr(miri, ignore = "two million keys are too many for Miri")]
    fn keys_made_to_collide_in_one_store_are_spread_in_another() {
        let place = |fingerprints: &Fingerprints, key: u32| {
            let name = fingerprints.of(&MeterId { namespace: "", scope: "s", key: &key.to_le_bytes() });
            (name.shard(64), name.kept() >> 26)
        };
        let most = |fingerprints: &Fingerprints, keys: &[u32]| {
            let mut keys_at = std::collections::HashMap::new();
            keys.iter().for_each(|key| *keys_at.entry(place(fingerprints, *key)).or_default() += 1);
            keys_at.into_values().max().unwrap_or(0)
        };
        let known = Fingerprints::with_seed(7);
        let colliding: Vec<u32> =
            (0..2_000_000).filter(|key| place(&known, *key) == place(&known, 0)).collect();
        assert!(colliding.len() > 300 && most(&known, &colliding) == colliding.len());
        // Of 500 keys in 4,096 places, ten are at the same place once in 10^12 stores.
        assert!(most(&Fingerprints::new(), &colliding) < 10);
    }

    #[test]
    fn fingerprints_depend_on_all_three_parts_of_a_name() {
        let long = "0123456789abcdefghijklmnopqrstuvwxyz";
        let mut names = std::collections::HashSet::new();
        for cut in 0..=long.len() {
            for again in cut..=long.len() {
                names.insert((
                    long[..cut].to_owned(),
                    long[cut..again].to_owned(),
                    long.as_bytes()[again..].to_vec(),
                ));
            }
        }
        for place in 0..long.len() {
            let mut key = long.as_bytes().to_vec();
            key[place] ^= 1;
            names.insert((String::new(), String::new(), key));
        }
        names.insert((String::new(), String::new(), Vec::new()));
        names.insert((String::new(), String::new(), vec![0]));
        names.insert((String::new(), String::new(), vec![0, 0]));
        let fingerprints = Fingerprints::new();
        let [mut low, mut high, mut between] = [(); 3].map(|()| std::collections::HashSet::new());
        for (namespace, scope, key) in &names {
            let fingerprint = fingerprints.of(&MeterId { namespace, scope, key });
            low.insert(fingerprint.low);
            high.insert(fingerprint.high);
            // The two hashes are independent.
            between.insert(fingerprint.low ^ fingerprint.high);
        }
        assert_eq!([&low, &high, &between].map(|all| all.len()), [names.len(); 3]);
    }
}
