//! Claims on a meter that is new, or whose state is not in its slot.

use ratelimit_core::store::Verdict;
use ratelimit_core::{ErrorKind, StoreError};

use super::{MemoryStore, NAME};
use crate::kit::{Demand, Fingerprint};
use crate::shard::ShardGuard;
use crate::table::SlotIndex;

impl MemoryStore {
    /// A claim on a meter whose state is not in its slot: a log, a window of many segments, or a bucket of several rates.
    #[inline(never)]
    pub(super) fn claim_elsewhere(
        &self,
        mut shard: ShardGuard<'_>,
        place: SlotIndex,
        demand: Demand<'_>,
    ) -> (bool, Verdict) {
        let decided = shard.claim_elsewhere(place, demand);
        self.release(shard, decided, demand)
    }

    /// A claim on a meter that the store does not have.
    ///
    /// It is decided before the meter is inserted: otherwise the decision would wait for memory that is not in the cache.
    #[inline(never)]
    pub(super) fn claim_new(
        &self,
        mut shard: ShardGuard<'_>,
        fingerprint: Fingerprint,
        demand: Demand<'_>,
    ) -> Result<(bool, Verdict), StoreError> {
        let admitted = demand.fits_fresh();
        if !(admitted && demand.charges()) {
            return Ok((admitted, shard.verdict(None, demand)));
        }
        let room = shard.make_room(1, self.bound, demand.now, &[]);
        if !room.is_made {
            return Err(full());
        }
        let decided = shard.charge_new(fingerprint, demand);
        drop(shard);
        self.continue_sweep(demand.now);
        if room.evicted > 0 {
            self.count_evicted(room.evicted);
        }
        Ok(decided)
    }
}

#[cold]
pub(crate) fn full() -> StoreError {
    StoreError::new(
        NAME,
        ErrorKind::Full,
        "there is no room for another key; raise `max_keys`, or let the store evict",
    )
}
