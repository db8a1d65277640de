//! Fingerprints of meters' names, by secrets that no client knows.

use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::{SharedSeed, fast, quality};
use ratelimit_core::MeterId;

/// Stands for a meter's name, which is not kept: two hashes of it by unrelated secrets.
///
/// Of the 128 bits a table keeps 96; the shard and the tag say up to 24 more. With ten million meters, two of them share
/// the kept bits with a probability of 10<sup>-15</sup>.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fingerprint {
    /// Kept by a table.
    pub(crate) low: u64,
    /// In this order: what a table keeps as well, eight bits for the tag, eight to spare, and what tells the shard.
    pub(crate) high: u64,
}

impl Fingerprint {
    /// The bits of the second hash that a table keeps, and by which it chooses where a search begins.
    #[inline]
    pub(crate) fn kept(self) -> u32 {
        (self.high >> 32) as u32
    }

    /// Eight bits that are not among those kept; two at least.
    #[inline]
    pub(crate) fn tag(self) -> u64 {
        ((self.high >> 24) & 0xff).max(2)
    }

    /// Which of at most 2<sup>16</sup> shards, a power of two, it falls to.
    #[inline]
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.high & 0xffff) as usize & (shards - 1)
    }
}

/// Makes the fingerprints of one store.
///
/// Clients choose keys, and whoever could choose many that fall together would make the store slow; whoever could
/// choose two with one fingerprint would have them counted together. All seeds of foldhash are therefore secret, each store's
/// own, and come from the operating system's randomness, which std keys its own maps with; without them collisions cannot be
/// prepared. No hash and no order of keys is ever shown, which is what an attacker would need to work them out. foldhash
/// does not claim to withstand one who can measure single look-ups to the nanosecond; over a network, behind a lock,
/// nobody can. SipHash would withstand even that, and takes several times as long.
#[repr(C)] // what each key needs is side by side
pub(crate) struct Fingerprints {
    /// What a limit's name is hashed by, and what tells the two hashes of a key under it apart.
    own: [u64; 2],
    shared: [SharedSeed; 2],
}

impl Fingerprints {
    pub(crate) fn new() -> Self {
        Self { shared: [(); 2].map(|()| SharedSeed::from_u64(random())), own: [(); 2].map(|()| random()) }
    }

    /// Name space and scope are few, and no client chooses them: one hash of them goes into both of the key's.
    #[inline(always)]
    pub(crate) fn of(&self, id: &MeterId<'_>) -> Fingerprint {
        let mut name = fast::FoldHasher::with_seed(self.own[0], &self.shared[0]);
        // A part is mixed in after what was before it has been turned by the part's length, and is multiplied then: that tells
        // where one ends and the next begins.
        if !id.namespace.is_empty() {
            name.write(id.namespace.as_bytes());
        }
        name.write(id.scope.as_bytes());
        let name = name.finish();
        // Of this one all bits are compared, so none has to be better than the others.
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
    fn each_store_has_secrets_of_its_own() {
        let id = MeterId { namespace: "", scope: "s", key: b"key" };
        let (one, other) = (Fingerprints::new(), Fingerprints::new());
        assert_eq!(one.of(&id), one.of(&id));
        assert_ne!(one.of(&id).low, other.of(&id).low);
        assert_ne!(one.of(&id).high, other.of(&id).high);
    }

    #[test]
    fn a_name_is_all_of_its_three_parts() {
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
        let prints = Fingerprints::new();
        let [mut low, mut high, mut between] = [(); 3].map(|()| std::collections::HashSet::new());
        for (namespace, scope, key) in &names {
            let print = prints.of(&MeterId { namespace, scope, key });
            low.insert(print.low);
            high.insert(print.high);
            // One hash says nothing of the other.
            between.insert(print.low ^ print.high);
        }
        assert_eq!([&low, &high, &between].map(|all| all.len()), [names.len(); 3]);
    }
}
