//! Fingerprints of meters' names, by secrets that no client knows.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use ratelimit_core::MeterId;

/// Seeded by the operating system's randomness, which std keys its own maps with.
static SHARED: LazyLock<[SharedSeed; 2]> = LazyLock::new(|| [random(), random()].map(SharedSeed::from_u64));

/// Stands for a meter's name: two hashes of it by unrelated secrets. That two of ten million meters share one has a
/// probability of 10<sup>-15</sup>.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Print {
    /// Where a search begins.
    pub(super) hash: u64,
    pub(super) other: u32,
}

impl Print {
    /// Which of so many shards, a power of two, it falls to. The table in the shard goes by the lowest and the
    /// uppermost bits.
    #[inline]
    pub(super) fn shard(self, shards: usize) -> usize {
        usize::try_from(self.hash >> 32).unwrap_or(0) & (shards - 1)
    }
}

/// Makes the fingerprints of one ledger. Why these hashes withstand clients is told where the store in memory has its
/// own: the seeds come from the operating system, unless a test is to be repeated, and no hash is ever shown.
pub(super) struct Prints([SeedableRandomState; 2]);

impl Prints {
    pub(super) fn new(seed: Option<u64>) -> Self {
        if let Some(seed) = seed {
            let state = |seed| SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
            return Self([seed, !seed].map(state));
        }
        let [one, other] = &*SHARED;
        Self([SeedableRandomState::with_seed(random(), one), SeedableRandomState::with_seed(random(), other)])
    }

    /// The parts of the name are told apart as in the store in memory.
    #[inline]
    pub(super) fn of(&self, id: &MeterId<'_>) -> Print {
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
        Print { hash: one.finish(), other: u32::from_be_bytes([a, b, c, d]) }
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_all_of_its_three_parts_and_each_ledger_has_secrets_of_its_own() {
        let prints = Prints::new(None);
        let parts = [("", "ab", "c"), ("a", "b", "c"), ("", "a", "bc"), ("ab", "c", ""), ("", "abc", "")];
        let of = |prints: &Prints, (namespace, scope, key): (&str, &str, &str)| {
            prints.of(&MeterId { namespace, scope, key: key.as_bytes() })
        };
        for (place, one) in parts.iter().enumerate() {
            assert_eq!(of(&prints, *one), of(&prints, *one));
            assert_ne!(of(&prints, *one).hash, of(&Prints::new(None), *one).hash);
            let [same, again, different] = [7, 7, 8].map(|seed| of(&Prints::new(Some(seed)), *one));
            assert_eq!(same, again);
            assert!(same.hash != different.hash);
            for other in &parts[..place] {
                assert_ne!(of(&prints, *one).hash, of(&prints, *other).hash);
                assert_ne!(of(&prints, *one).other, of(&prints, *other).other);
            }
        }
    }
}
