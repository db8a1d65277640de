//! A claim that is alone in its slice: the outcome goes to the caller in registers.
//!
//! Each code path is separate up to its end, the call of `then`. Decision 30, in the documentation of the project, says what that
//! gives. Several claims go through a [`Slice`](crate::slice::Slice).

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{MeterId, Mode, Verdict};
use ratelimit_core::{StoreError, Timestamp};

use crate::MemoryStore;
use crate::kit::{Demand, Fingerprint, InPlace};
use crate::shards::ShardGuard;
use crate::store::{TIDY_EVERY, full};
use crate::table::SlotIndex;

impl MemoryStore {
    #[inline(always)]
    pub(crate) fn claim_only<R>(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        let fingerprint = self.fingerprints.of(id);
        let cell = self.shards.cell_of(fingerprint);
        // Built separately for each use: a shared one, whose address the rare paths take, would be kept in memory.
        let demand = || Demand { cost, meter, now, mode };
        if let Some(verdict) = cell.refuses(fingerprint, mode, demand) {
            return then(Ok((false, verdict)));
        }
        let mut shard = self.shards.lock_cell(cell);
        match shard.find_here(fingerprint, meter) {
            Ok((place, slot, InPlace::Window(window))) => {
                let decided = slot.claim_window(window, demand());
                self.claimed(shard, place, decided, demand(), then)
            }
            Ok((place, slot, InPlace::Bucket(bucket))) => {
                let decided = slot.claim_bucket(bucket, demand());
                self.claimed(shard, place, decided, demand(), then)
            }
            Err(place) => self.claim_unusual(shard, fingerprint, place, demand(), then),
        }
    }

    /// Completes a claim that was decided on a meter in its slot.
    #[inline(always)]
    fn claimed<R>(
        &self,
        mut shard: ShardGuard<'_>,
        place: SlotIndex,
        (admitted, verdict): (bool, Verdict),
        demand: Demand<'_>,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        shard.has_decided(place, admitted, demand);
        let tidy = admitted && demand.charges() && shard.is_time(TIDY_EVERY);
        self.release(shard, tidy, demand.now);
        then(Ok((admitted, verdict)))
    }

    /// A claim on a new meter, or on one whose state is not in its slot.
    #[inline(never)]
    fn claim_unusual<R>(
        &self,
        mut shard: ShardGuard<'_>,
        fingerprint: Fingerprint,
        place: Option<SlotIndex>,
        demand: Demand<'_>,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        let Some(place) = place else { return self.claim_new(shard, fingerprint, demand, then) };
        let (admitted, verdict) = shard.claim_other(place, demand);
        let tidy = admitted && demand.charges() && shard.is_time(TIDY_EVERY);
        self.release(shard, tidy, demand.now);
        then(Ok((admitted, verdict)))
    }

    /// A claim on a new meter.
    ///
    /// It is decided before the meter is inserted: reading what was just written to memory that is not in the cache takes
    /// as long as waiting for that memory.
    #[inline(always)]
    fn claim_new<R>(
        &self,
        mut shard: ShardGuard<'_>,
        fingerprint: Fingerprint,
        demand: Demand<'_>,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        let admitted = demand.fits_fresh();
        if !(admitted && demand.charges()) {
            return then(Ok((admitted, shard.verdict(None, demand))));
        }
        let room = shard.make_room(1, self.bound, demand.now, &[]);
        if !room.is_made {
            return then(Err(full()));
        }
        let decided = shard.claim_new(fingerprint, demand);
        self.release(shard, true, demand.now);
        if room.evicted > 0 {
            self.has_evicted(room.evicted);
        }
        then(Ok(decided))
    }
}
