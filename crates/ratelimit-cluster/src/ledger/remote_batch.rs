//! Usages received from another node, sorted by shard: each shard is locked once, and memory is accessed in order.

use ratelimit_core::{Meter, MeterId};
use ratelimit_memory::kit::{Fingerprint, Fingerprints};

use super::units::Units;

/// How many usages are sorted at once: about a megabyte.
const MAX_USAGES: usize = 16_384;

/// Usages of another node.
#[derive(Default)]
pub(super) struct RemoteBatch<'a> {
    usages: Vec<RemoteUsage<'a>>,
    /// The namespace, scope and meter of the usages. Consecutive usages mostly share them.
    limits: Vec<(&'a str, &'a str, Meter)>,
}

/// A usage in a compact form.
pub(super) struct RemoteUsage<'a> {
    pub(super) fingerprint: Fingerprint,
    pub(super) units: Units,
    key: &'a [u8],
    limit: usize,
}

impl<'a> RemoteBatch<'a> {
    /// Replaces the usages by the next ones; `false` if there are none.
    pub(super) fn fill(
        &mut self,
        fingerprints: &Fingerprints,
        usages: &mut impl Iterator<Item = (MeterId<'a>, Meter, Units)>,
    ) -> bool {
        self.usages.clear();
        self.limits.clear();
        for (id, meter, units) in usages.take(MAX_USAGES) {
            let is_same = |(namespace, scope, of): &(&str, &str, Meter)| {
                // Usages of one limit refer to the same bytes of the message.
                std::ptr::eq(*namespace, id.namespace) && std::ptr::eq(*scope, id.scope) && *of == meter
            };
            if !self.limits.last().is_some_and(is_same) {
                self.limits.push((id.namespace, id.scope, meter));
            }
            let (fingerprint, limit) = (fingerprints.of(&id), self.limits.len() - 1);
            self.usages.push(RemoteUsage { fingerprint, units, key: id.key, limit });
        }
        !self.usages.is_empty()
    }

    /// The meter of a usage.
    pub(super) fn meter(&self, usage: &RemoteUsage<'a>) -> (MeterId<'a>, &Meter) {
        let (namespace, scope, meter) = &self.limits[usage.limit];
        (MeterId { namespace, scope, key: usage.key }, meter)
    }

    /// A usage by its index.
    pub(super) fn at(&self, index: u32) -> &RemoteUsage<'a> {
        &self.usages[index as usize]
    }

    /// The indices of all usages, sorted by shard. Within a shard they keep their order.
    pub(super) fn by_shard(&self, shards: usize) -> Vec<u32> {
        let mut begins = vec![0; shards + 1];
        for usage in &self.usages {
            begins[usage.fingerprint.shard(shards) + 1] += 1;
        }
        for shard in 1..shards {
            begins[shard] += begins[shard - 1];
        }
        let mut order = vec![0; self.usages.len()];
        for (index, usage) in (0..).zip(&self.usages) {
            let next = &mut begins[usage.fingerprint.shard(shards)];
            order[*next] = index;
            *next += 1;
        }
        order
    }
}
