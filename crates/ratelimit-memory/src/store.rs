//! The store: a claim's way to its meter.

mod new_or_large;
mod traits;
mod usage;

pub(crate) use new_or_large::full;

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Answer, Claims, MeterId, Mode, Verdict, Verdicts};
use ratelimit_core::{StoreError, SyncCounterStore, Timestamp, kit};

use crate::counters::{Evicted, Walk};
use crate::kit::{Demand, Fingerprint, Fingerprints, SlotMeter};
use crate::shard::{Bound, ShardGuard};
use crate::shards::Shards;
use crate::table::SlotIndex;
use crate::{MemoryConfig, WhenFull};

/// A store in the memory of this process.
///
/// Share it between threads, and between limiters with different namespaces, behind an [`Arc`](std::sync::Arc) or by
/// reference.
///
/// ```
/// use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
/// use std::sync::Arc;
///
/// let store = Arc::new(MemoryStore::new());
/// let log_in = RateLimiter::new(store.clone(), "5/min".parse::<Limit>()?).with_namespace("log-in");
/// let search = RateLimiter::new(store.clone(), "10/s burst 20".parse::<Limit>()?).with_namespace("search");
///
/// assert!(log_in.check_now("user:7")?.allowed());
/// assert!(search.check_now("user:7")?.allowed());
/// assert_eq!(store.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - Decisions are exact. Several claims are decided together as one step.
/// - Time is the caller's, and a meter remembers the latest instant at which it was charged.
/// - A check under up to four limits does not allocate if the key has a meter and at most 48 bytes, and neither does a
///   refusal. The exceptions are sliding logs while they grow, periods of the calendar, and refusals that count for a ban.
/// - Peeks, refusals and costs of zero store nothing.
/// - A check waits only for other checks on the same shard, and never panics because another thread did. Repeated
///   refusals of one key under one limit wait for nothing and write nothing (those of logs and segmented windows do wait).
///
/// The documentation of the crate says when expired meters are removed, and how much memory meters take.
#[repr(C)] // what each claim needs is side by side
pub struct MemoryStore {
    pub(crate) shards: Shards,
    pub(crate) fingerprints: Fingerprints,
    pub(crate) bound: Bound,
    config: MemoryConfig,
    pub(crate) walk: Walk,
    evicted: Evicted,
}

impl MemoryStore {
    /// Creates an empty store without a bound.
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// Creates an empty store.
    pub fn with_config(config: MemoryConfig) -> Self {
        let config = config.settled();
        if config.max_keys.is_some() && config.when_full == WhenFull::Evict {
            kit::count_evicted(NAME, 0);
        }
        Self {
            shards: Shards::new(config.shards),
            fingerprints: Fingerprints::new(),
            bound: Bound { most: config.share(), evict: config.when_full == WhenFull::Evict },
            config,
            walk: Walk::default(),
            evicted: Evicted::default(),
        }
    }

    /// The store's configuration, with the actual number of shards.
    pub fn config(&self) -> &MemoryConfig {
        &self.config
    }
}

impl SyncCounterStore for MemoryStore {
    #[inline]
    fn claim_one_now(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
    ) -> Result<(bool, Verdict), StoreError> {
        self.claim_one(self.fingerprints.of(id), Demand { cost, meter, now, mode })
    }

    fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        match &*claims {
            [claim] => {
                let (now, mode) = (claims.now(), claims.mode());
                let (admitted, verdict) =
                    self.claim_one_now(now, mode, &claim.id, claim.cost, &claim.meter)?;
                let charged = admitted && mode != Mode::Peek;
                Ok(Answer { admitted, charged, now, verdicts: Verdicts::from_iter([verdict]) })
            }
            _ => self.claim_several(claims),
        }
    }

    fn reset_now(&self, claims: Claims<'_>) {
        for claim in claims.iter() {
            let fingerprint = self.fingerprints.of(&claim.id);
            self.shards.lock_cell(self.shards.cell_of(fingerprint)).reset(fingerprint);
        }
    }
}

impl MemoryStore {
    /// Decides one claim on its meter.
    ///
    /// Windows and buckets have arms of their own, because a shared one would copy the verdict (decision 30, in the
    /// documentation of the project).
    #[inline(always)]
    fn claim_one(&self, fingerprint: Fingerprint, demand: Demand<'_>) -> Result<(bool, Verdict), StoreError> {
        let cell = self.shards.cell_of(fingerprint);
        // Repeated refusals of one key take no lock.
        if let Some(verdict) = cell.refuses(fingerprint, demand) {
            return Ok((false, verdict));
        }
        let mut shard = self.shards.lock_cell(cell);
        match shard.find_in_slot(fingerprint, demand.meter) {
            Ok((place, slot, SlotMeter::Window(window))) => {
                let decided = slot.claim_window(window, demand);
                Ok(self.finish(shard, place, decided, demand))
            }
            Ok((place, slot, SlotMeter::Bucket(bucket))) => {
                let decided = slot.claim_bucket(bucket, demand);
                Ok(self.finish(shard, place, decided, demand))
            }
            Err(Some(place)) => Ok(self.claim_elsewhere(shard, place, demand)),
            Err(None) => self.claim_new(shard, fingerprint, demand),
        }
    }

    /// Completes a claim that was decided on a meter in its slot.
    #[inline(always)]
    fn finish(
        &self,
        mut shard: ShardGuard<'_>,
        place: SlotIndex,
        decided: (bool, Verdict),
        demand: Demand<'_>,
    ) -> (bool, Verdict) {
        shard.record(place, decided.0, demand);
        self.release(shard, decided, demand)
    }

    /// Releases the shard of a known meter, and continues the sweep if it is time.
    #[inline(always)]
    fn release(
        &self,
        shard: ShardGuard<'_>,
        (admitted, verdict): (bool, Verdict),
        demand: Demand<'_>,
    ) -> (bool, Verdict) {
        let sweep = admitted && demand.charges() && shard.is_time_to_sweep();
        drop(shard); // publishes what others read without the lock, and releases it
        if sweep {
            self.continue_sweep(demand.now);
        }
        (admitted, verdict)
    }
}

/// The store's name in errors and metrics.
const NAME: &str = "memory";

#[cfg(test)]
mod tests;
