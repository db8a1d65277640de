//! What another node tells, in the order of the shards: each is held once, and memory is gone through as it lies.

use ratelimit_core::{Meter, MeterId};

use super::print::{Print, Prints};
use super::units::Units;

/// How many usages are put in order at once: about a megabyte.
const MOST: usize = 16_384;

/// Usages of another node.
#[derive(Default)]
pub(super) struct Heard<'a> {
    told: Vec<Told<'a>>,
    /// Under which names and how meters count: as a rule many one after another under the same.
    limits: Vec<(&'a str, &'a str, Meter)>,
}

/// A usage, briefly.
pub(super) struct Told<'a> {
    pub(super) print: Print,
    pub(super) units: Units,
    key: &'a [u8],
    limit: usize,
}

impl<'a> Heard<'a> {
    /// Takes the next ones in place of those that were there; `false` if there are none.
    pub(super) fn gather(
        &mut self,
        prints: &Prints,
        told: &mut impl Iterator<Item = (MeterId<'a>, Meter, Units)>,
    ) -> bool {
        self.told.clear();
        self.limits.clear();
        for (id, meter, units) in told.take(MOST) {
            let is_same = |(namespace, scope, of): &(&str, &str, Meter)| {
                // Of one limit they are the same bytes of the message.
                std::ptr::eq(*namespace, id.namespace) && std::ptr::eq(*scope, id.scope) && *of == meter
            };
            if !self.limits.last().is_some_and(is_same) {
                self.limits.push((id.namespace, id.scope, meter));
            }
            self.told.push(Told { print: prints.of(&id), units, key: id.key, limit: self.limits.len() - 1 });
        }
        !self.told.is_empty()
    }

    /// The meter that a usage is of.
    pub(super) fn meter(&self, told: &Told<'a>) -> (MeterId<'a>, &Meter) {
        let (namespace, scope, meter) = &self.limits[told.limit];
        (MeterId { namespace, scope, key: told.key }, meter)
    }

    /// A usage by its number.
    pub(super) fn at(&self, number: u32) -> &Told<'a> {
        &self.told[number as usize]
    }

    /// The numbers of all usages in the order of their shards; of one shard, as they were told.
    pub(super) fn by_shard(&self, shards: usize) -> Vec<u32> {
        let mut begins = vec![0; shards + 1];
        for told in &self.told {
            begins[told.print.shard(shards) + 1] += 1;
        }
        for shard in 1..shards {
            begins[shard] += begins[shard - 1];
        }
        let mut order = vec![0; self.told.len()];
        for (number, told) in (0..).zip(&self.told) {
            let next = &mut begins[told.print.shard(shards)];
            order[*next] = number;
            *next += 1;
        }
        order
    }
}
