//! The number of meters in a ledger, and its bound.

use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::{ErrorKind, StoreError};

/// Counts the meters in all shards.
pub(super) struct Capacity {
    used: AtomicUsize,
    max: usize,
}

impl Capacity {
    pub(super) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn has_room_for(&self, wanted: usize) -> bool {
        self.used().saturating_add(wanted) <= self.max
    }

    pub(super) fn available(&self) -> usize {
        self.max.saturating_sub(self.used())
    }

    /// Reserves room for one meter. `false` if the ledger is full.
    pub(super) fn reserve(&self) -> bool {
        let more = |used: usize| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Releases the room of one meter.
    pub(super) fn release(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error for a claim on a new meter in a full ledger.
#[cold]
pub(super) fn full() -> StoreError {
    StoreError::new("the local count", ErrorKind::Full, "there is no room for another key; raise `max_keys`")
}
