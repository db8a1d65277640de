//! Fingerprints of meter names: keyed hashes that clients cannot predict.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use ratelimit_core::MeterId;

/// Seeded from the operating system's randomness, like the hash maps of std.
static SHARED: LazyLock<[SharedSeed; 2]> = LazyLock::new(|| [random(), random()].map(SharedSeed::from_u64));

/// Identifies a meter by two hashes of its name with unrelated keys. Among ten million meters, the probability that two
/// have the same fingerprint is 10<sup>-15</sup>.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fingerprint {
    /// The hash that the table uses.
    pub(super) hash: u64,
    pub(super) other: u32,
}

impl Fingerprint {
    /// The shard of the meter; `shards` is a power of two. The table in a shard uses the lowest and the highest bits of the
    /// hash, so this uses other bits.
    #[inline]
    pub(super) fn shard(self, shards: usize) -> usize {
        usize::try_from(self.hash >> 32).unwrap_or(0) & (shards - 1)
    }
}

/// Computes the fingerprints of one ledger. Clients cannot construct collisions: the seeds come from the operating system
/// (except in a test that must be repeatable), and no hash is ever shown. See also the fingerprints of the memory store.
pub(super) struct Fingerprinter([SeedableRandomState; 2]);

impl Fingerprinter {
    pub(super) fn new(seed: Option<u64>) -> Self {
        if let Some(seed) = seed {
            let state = |seed| SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
            return Self([seed, !seed].map(state));
        }
        let [one, other] = &*SHARED;
        Self([SeedableRandomState::with_seed(random(), one), SeedableRandomState::with_seed(random(), other)])
    }

    /// Separates the parts of the name as the memory store does.
    #[inline]
    pub(super) fn of(&self, id: &MeterId<'_>) -> Fingerprint {
        let [mut one, mut other] = [self.0[0].build_hasher(), self.0[1].build_hasher()];
        if !id.namespace.is_empty() {
            one.write(id.namespace.as_bytes());
            other.write(id.namespace.as_bytes());
        }
        one.write(id.scope.as_bytes());
        other.write(id.scope.as_bytes());
        one.write(id.key);
        other.write(id.key);
        let [.., a, b, c, d] = other.finish().to_be_bytes();
        Fingerprint { hash: one.finish(), other: u32::from_be_bytes([a, b, c, d]) }
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_covers_all_three_parts_and_each_ledger_has_its_own_keys() {
        let fingerprinter = Fingerprinter::new(None);
        let parts = [("", "ab", "c"), ("a", "b", "c"), ("", "a", "bc"), ("ab", "c", ""), ("", "abc", "")];
        let of = |fingerprinter: &Fingerprinter, (namespace, scope, key): (&str, &str, &str)| {
            fingerprinter.of(&MeterId { namespace, scope, key: key.as_bytes() })
        };
        for (place, one) in parts.iter().enumerate() {
            assert_eq!(of(&fingerprinter, *one), of(&fingerprinter, *one));
            assert_ne!(of(&fingerprinter, *one).hash, of(&Fingerprinter::new(None), *one).hash);
            let [same, again, different] = [7, 7, 8].map(|seed| of(&Fingerprinter::new(Some(seed)), *one));
            assert_eq!(same, again);
            assert!(same.hash != different.hash);
            for other in &parts[..place] {
                assert_ne!(of(&fingerprinter, *one).hash, of(&fingerprinter, *other).hash);
                assert_ne!(of(&fingerprinter, *one).other, of(&fingerprinter, *other).other);
            }
        }
    }
}
