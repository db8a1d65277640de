//! Fingerprints of meter names, in the form that a slot stores.

use ratelimit_core::MeterId;
use ratelimit_memory::kit::Fingerprints;

/// Identifies a meter by two hashes of its name with unrelated keys. Among ten million meters, the probability that two
/// have the same fingerprint is 10<sup>-15</sup>.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fingerprint {
    /// The hash that the table uses.
    pub(super) hash: u64,
    pub(super) other: u32,
}

impl Fingerprint {
    #[inline]
    pub(super) fn of(fingerprints: &Fingerprints, id: &MeterId<'_>) -> Self {
        let fingerprint = fingerprints.of(id);
        Self { hash: fingerprint.high, other: (fingerprint.low >> 32) as u32 }
    }

    /// The shard of the meter; `shards` is a power of two. The table in a shard uses the lowest and the highest bits of the
    /// hash, so this uses other bits.
    #[inline]
    pub(super) fn shard(self, shards: usize) -> usize {
        usize::try_from(self.hash >> 32).unwrap_or(0) & (shards - 1)
    }
}
