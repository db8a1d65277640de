//! Hashes of meters' names, by secrets that no client knows.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use ratelimit_core::MeterId;

/// Seeded by the operating system's randomness, which std keys its own maps with.
static SHARED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random()));

/// Hashes names for one store.
///
/// Clients choose keys, and whoever could choose many with the same hash would make the store slow. Both seeds of
/// foldhash are therefore secret and come from the operating system's randomness, one for each process and one for
/// each store; without them collisions cannot be prepared. No hash and no order of keys is ever shown, which is what
/// an attacker would need to work them out. foldhash does not claim to withstand one who can measure single
/// look-ups to the nanosecond; over a network, behind a lock, nobody can. SipHash would withstand even that, and
/// takes several times as long.
pub(crate) struct NameHash(SeedableRandomState);

impl NameHash {
    pub(crate) fn new() -> Self {
        Self(SeedableRandomState::with_seed(random(), &SHARED))
    }

    #[inline]
    pub(crate) fn of(&self, id: &MeterId<'_>) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(id.namespace.as_bytes());
        hasher.write(id.scope.as_bytes());
        hasher.write(id.key);
        hasher.finish()
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_hashes_by_a_secret_of_its_own() {
        let id = MeterId { namespace: "", scope: "s", key: b"key" };
        let (one, other) = (NameHash::new(), NameHash::new());
        assert_eq!(one.of(&id), one.of(&id));
        assert_ne!(one.of(&id), other.of(&id));
    }
}
