//! The shards of a store, and which of them has a meter.

use std::ops::Range;

use ratelimit_core::Timestamp;

use crate::glances::Glances;
use crate::kit::Fingerprint;
use crate::shard::{ShardCell, ShardGuard};

/// The shards of a store.
pub(crate) struct Shards {
    cells: Box<[ShardCell]>,
    glances: Glances,
}

impl Shards {
    /// Creates `count` shards; a power of two.
    pub(crate) fn new(count: usize) -> Self {
        Self { cells: (0..count).map(ShardCell::new).collect(), glances: Glances::new(count) }
    }

    /// The number of shards.
    pub(crate) fn count(&self) -> usize {
        self.cells.len()
    }

    /// The number of meters in all shards, without waiting for the locks.
    pub(crate) fn len(&self) -> usize {
        self.glances.len()
    }

    /// Whether one of these shards may have an expired meter, without waiting for their locks.
    #[inline]
    pub(crate) fn may_forget(&self, numbers: Range<usize>, now: Timestamp) -> bool {
        self.glances.may_forget(numbers, now)
    }

    /// The number of the shard that contains a meter.
    #[inline]
    pub(crate) fn number_of(&self, fingerprint: Fingerprint) -> usize {
        fingerprint.shard(self.cells.len())
    }

    /// The shard that contains a meter, behind its lock.
    #[inline]
    pub(crate) fn cell_of(&self, fingerprint: Fingerprint) -> &ShardCell {
        &self.cells[self.number_of(fingerprint)]
    }

    /// Locks a shard.
    #[inline]
    pub(crate) fn lock_cell<'s>(&'s self, cell: &'s ShardCell) -> ShardGuard<'s> {
        cell.lock(&self.glances)
    }

    /// Locks the shard of this number.
    pub(crate) fn lock(&self, number: usize) -> ShardGuard<'_> {
        self.lock_cell(&self.cells[number])
    }

    /// Locks the shard of this number if no other thread holds it.
    pub(crate) fn try_lock(&self, number: usize) -> Option<ShardGuard<'_>> {
        self.cells[number].try_lock(&self.glances)
    }
}
