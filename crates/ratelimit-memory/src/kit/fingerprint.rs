//! Fingerprints of meters' names, keyed with secrets that no client knows.

use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::{SharedSeed, fast, quality};
use ratelimit_core::store::MeterId;

/// Identifies a meter without storing its name: two hashes of the name with unrelated secrets.
///
/// Meters are the same if they have the same shard, the same tag, and the same 90 bits that a slot stores: more than 96 bits.
/// With ten million meters, the probability that two of them share these is 10<sup>-15</sup>.
///
/// | bits | of `low` | of `high` |
/// |---|---|---|
/// | 63 to 0 | stored in the slot | |
/// | 63 to 38 | | stored in the slot, and the bucket where a search begins |
/// | 31 to 24 | | the tag |
/// | 15 to 0 | | the shard |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint {
    /// Stored in a slot.
    pub low: u64,
    /// Stored in part.
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
    secrets: [u64; 2],
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
        Self { secrets: [name, key], shared: [low, high].map(SharedSeed::from_u64) }
    }

    /// The fingerprint of a meter's name.
    ///
    /// There are few namespaces and scopes, and no client chooses them, so they are hashed once; the result seeds both hashes
    /// of the key.
    #[inline(always)]
    pub fn of(&self, id: &MeterId<'_>) -> Fingerprint {
        let mut name = fast::FoldHasher::with_seed(self.secrets[0], &self.shared[0]);
        // Each part is mixed in after the previous state was rotated by the part's length, and then multiplied. This
        // marks where one part ends and the next begins.
        if !id.namespace.is_empty() {
            name.write(id.namespace.as_bytes());
        }
        name.write(id.scope.as_bytes());
        let name = name.finish();
        // All bits of this hash are compared, so none of them has to be of better quality than the others.
        let mut low = fast::FoldHasher::with_seed(name, &self.shared[0]);
        let mut high = quality::FoldHasher::with_seed(name ^ self.secrets[1], &self.shared[1]);
        low.write(id.key);
        high.write(id.key);
        Fingerprint { low: low.finish(), high: high.finish() }
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests;
