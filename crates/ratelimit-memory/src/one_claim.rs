//! A claim that is alone in its slice needs no lists. Several claims go through a [`Slice`](crate::slice::Slice).
//!
//! Claims on windows and on buckets are decided on paths of their own up to the end, so that a verdict is built where it is
//! returned. Decision 30, in the documentation of the project, has the measurements.

use ratelimit_core::StoreError;
use ratelimit_core::store::Verdict;

use crate::MemoryStore;
use crate::kit::{Demand, Fingerprint, InPlace};
use crate::shards::ShardGuard;
use crate::store::{TIDY_EVERY, full};
use crate::table::SlotIndex;

impl MemoryStore {
    #[inline(always)]
    pub(crate) fn claim_one(
        &self,
        fingerprint: Fingerprint,
        demand: Demand<'_>,
    ) -> Result<(bool, Verdict), StoreError> {
        let cell = self.shards.cell_of(fingerprint);
        if let Some(verdict) = cell.refuses(fingerprint, demand) {
            return Ok((false, verdict));
        }
        let mut shard = self.shards.lock_cell(cell);
        match shard.find_here(fingerprint, demand.meter) {
            Ok((place, slot, InPlace::Window(window))) => {
                let decided = slot.claim_window(window, demand);
                self.claimed(shard, place, decided, demand)
            }
            Ok((place, slot, InPlace::Bucket(bucket))) => {
                let decided = slot.claim_bucket(bucket, demand);
                self.claimed(shard, place, decided, demand)
            }
            Err(place) => self.claim_unusual(shard, fingerprint, place, demand),
        }
    }

    /// Completes a claim that was decided on a meter in its slot.
    #[inline(always)]
    fn claimed(
        &self,
        mut shard: ShardGuard<'_>,
        place: SlotIndex,
        (admitted, verdict): (bool, Verdict),
        demand: Demand<'_>,
    ) -> Result<(bool, Verdict), StoreError> {
        shard.has_decided(place, admitted, demand);
        let tidy = admitted && demand.charges() && shard.is_time(TIDY_EVERY);
        self.release(shard, tidy, demand.now);
        Ok((admitted, verdict))
    }

    /// A claim on a new meter, or on one whose state is not in its slot.
    #[inline(never)]
    fn claim_unusual(
        &self,
        mut shard: ShardGuard<'_>,
        fingerprint: Fingerprint,
        place: Option<SlotIndex>,
        demand: Demand<'_>,
    ) -> Result<(bool, Verdict), StoreError> {
        let Some(place) = place else { return self.claim_new(shard, fingerprint, demand) };
        let (admitted, verdict) = shard.claim_other(place, demand);
        let tidy = admitted && demand.charges() && shard.is_time(TIDY_EVERY);
        self.release(shard, tidy, demand.now);
        Ok((admitted, verdict))
    }

    /// A claim on a new meter.
    ///
    /// It is decided before the meter is inserted: reading what was just written to memory that is not in the cache takes
    /// as long as waiting for that memory.
    #[inline(always)]
    fn claim_new(
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
        let decided = shard.claim_new(fingerprint, demand);
        self.release(shard, true, demand.now);
        if room.evicted > 0 {
            self.has_evicted(room.evicted);
        }
        Ok(decided)
    }
}
