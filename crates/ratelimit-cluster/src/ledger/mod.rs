//! The ledger: a node's meters, and the units that it has not sent to its peers yet.
//!
//! A claim is decided at once by the state of its meter, which contains the node's own units and those received from other
//! nodes. A charge is also recorded as *pending*. Each interval the node takes the pending units as [`Usage`]s and sends
//! them; usages received from other nodes are merged.
//!
//! - [`Ledger::take_each`] and [`Ledger::take_parts`] return what is pending, one usage for each meter and segment of time.
//!   After that it counts as sent; [`Ledger::put_back`] makes it pending again if sending failed. None of them changes a
//!   state.
//! - [`Ledger::merge`] adds the usages of another node. The caller ensures that each usage is added only once.
//! - [`Ledger::states`] returns the states, one shard at a time. [`Ledger::raise`] merges such a state by maximum, so a state
//!   may arrive twice or overlap with usages.
//! - `shared_store.rs` has the methods for counting with a shared store, whose readings replace the states.
//!
//! The work of an interval depends on the number of charges in it, not on the number of meters.

mod capacity;
#[cfg(test)]
mod changing_limits;
mod cold;
mod entry;
mod log_owners;
mod merge;
mod reading;
mod shard;
mod shared_state;
mod shared_store;
mod slice;
mod slot;
mod store_methods;
#[cfg(test)]
mod tests;
mod units;
mod usage;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::kit::OwnedName;
use ratelimit_core::meter::{MAX_RATES, Meter, State};
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Refund, Verdict, Verdicts};
use ratelimit_core::{ErrorKind, StoreError, Timestamp};
use ratelimit_memory::kit::{Demand, Fingerprint, Fingerprints, SpinGuard, SpinLock};

use self::capacity::{Capacity, full};
pub(crate) use self::merge::largest;
pub(crate) use self::reading::{BucketReading, Reading};
use self::shard::{SWEPT_METERS, Shard};
pub(crate) use self::store_methods::{counter_store_methods, sync_counter_store_methods};
use self::units::counts_alike;
pub(crate) use self::units::{Units, whole_units};
pub(crate) use self::usage::{Known, Usage};

/// The meters of a node.
pub(crate) struct Ledger {
    /// A power of two.
    shards: Box<[ShardCell]>,
    fingerprints: Fingerprints,
    capacity: Capacity,
    next_shard: NextShard,
    /// The same once an interval: a caller whose clock is behind must not skip shards for the others.
    next_to_expire: NextShard,
}

/// A shard behind its lock, on its own cache lines.
#[derive(Default)]
#[repr(align(128))]
struct ShardCell(SpinLock<Shard>);

impl ShardCell {
    #[inline]
    fn lock(&self) -> SpinGuard<'_, Shard> {
        self.0.lock()
    }
}

/// The shard where the next sweep starts.
#[derive(Default)]
#[repr(align(128))]
struct NextShard(AtomicUsize);

/// The maximum number of shards. A small ledger has one for each `METERS_PER_SHARD` meters.
///
/// With more shards, less of what a claim needs stays in the processor's caches: with four times as many, a check of 100,000
/// keys takes a tenth longer.
const MAX_SHARDS: usize = 256;
const METERS_PER_SHARD: usize = 256;

/// How many shards a sweep visits that runs as part of a claim.
const SWEPT_SHARDS: usize = 16;

/// How many usages of another node are sorted at once: about a megabyte.
const MERGED_AT_ONCE: usize = 8_192;

/// How many meters a sweep visits at least once an interval, or when the ledger is full.
const SWEPT_METERS_LONG: usize = 64;

/// A sweep once an interval visits one in this many meters.
const EXPIRY_SHARE: usize = 64;

impl Ledger {
    /// A ledger of at most `max_keys` meters. Its fingerprints are random unless there is a seed.
    pub(crate) fn new(max_keys: usize, seed: Option<u64>) -> Self {
        let shards = (max_keys / METERS_PER_SHARD).clamp(1, MAX_SHARDS).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| ShardCell::default()).collect(),
            fingerprints: seed.map_or_else(Fingerprints::new, Fingerprints::with_seed),
            capacity: Capacity::new(max_keys),
            next_shard: NextShard::default(),
            next_to_expire: NextShard::default(),
        }
    }

    /// The number of meters.
    pub(crate) fn len(&self) -> usize {
        self.capacity.used()
    }

    #[inline]
    fn shard(&self, fingerprint: Fingerprint) -> SpinGuard<'_, Shard> {
        self.shards[fingerprint.shard(self.shards.len())].lock()
    }

    /// See [`SyncCounterStore::claim_now`](ratelimit_core::SyncCounterStore::claim_now).
    pub(crate) fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let (now, mode) = (claims.now(), claims.mode());
        if let [claim] = &*claims {
            let (admitted, verdict) = self.claim_one_now(now, mode, claim)?;
            let charged = admitted && mode != Mode::Peek;
            return Ok(Answer { admitted, charged, now, verdicts: Verdicts::from_iter([verdict]) });
        }
        if claims.iter().any(|claim| is_in_steps(&claim.meter)) {
            return Err(cannot_count_in_steps());
        }
        if mode != Mode::Peek {
            self.make_room(claims.len(), now);
        }
        self.claim_all(claims)
    }

    /// Decides a single claim: whether it is admitted, and its verdict.
    #[inline]
    pub(crate) fn claim_one_now(
        &self,
        now: Timestamp,
        mode: Mode,
        claim: &Claim<'_>,
    ) -> Result<(bool, Verdict), StoreError> {
        if is_in_steps(&claim.meter) {
            return Err(cannot_count_in_steps());
        }
        let fingerprint = self.fingerprints.of(&claim.id);
        let demand = Demand::new(claim, now, mode);
        let mut shard = self.shard(fingerprint);
        let (decided, tidy) = (shard.claim(fingerprint, demand), shard.has_to_tidy());
        drop(shard);
        let Some(decided) = decided else { return self.claim_new(&claim.id, demand, fingerprint) };
        if tidy {
            self.tidy(now);
        }
        Ok(decided)
    }

    /// Decides a claim on a meter that was not in the ledger a moment ago.
    fn claim_new(
        &self,
        id: &MeterId<'_>,
        demand: Demand<'_>,
        fingerprint: Fingerprint,
    ) -> Result<(bool, Verdict), StoreError> {
        let Demand { cost, meter, now, .. } = demand;
        let admitted = demand.fits_fresh();
        if !admitted || !demand.charges() {
            return Ok((admitted, meter.verdict(&meter.fresh(), cost, now, None)));
        }
        self.make_room(1, now);
        let mut shard = self.shard(fingerprint);
        // Another thread may have inserted it in the meantime.
        if !shard.contains(fingerprint) && !shard.insert(fingerprint, id, meter, &self.capacity) {
            return Err(full());
        }
        shard.claim(fingerprint, demand).ok_or_else(full)
    }

    /// See [`SyncCounterStore::refund_now`](ratelimit_core::SyncCounterStore::refund_now).
    pub(crate) fn refund_now(&self, now: Timestamp, refunds: &[Refund<'_>]) {
        for refund in refunds {
            let fingerprint = self.fingerprints.of(&refund.id);
            self.shard(fingerprint).refund(fingerprint, refund, now);
        }
    }

    /// Removes meters on this node only. Their pending units are removed, too, or are still to be sent.
    pub(crate) fn reset_now(&self, claims: Claims<'_>, keeps_pending: bool) {
        for claim in claims.iter() {
            let fingerprint = self.fingerprints.of(&claim.id);
            self.shard(fingerprint).remove(fingerprint, keeps_pending, &self.capacity);
        }
    }

    /// Takes all pending usages in parts of at most `max`, except that all usages of one meter are in the same part. A usage
    /// without units is of a meter that has refused a claim and has to be read.
    pub(crate) fn take_parts(&self, max: usize) -> Vec<Vec<Usage>> {
        let mut parts: Vec<Vec<Usage>> = Vec::new();
        for shard in &self.shards {
            let mut taken = Vec::new();
            let each = |name: &OwnedName, meter: &Meter, units| {
                taken.push(Usage { name: name.clone(), meter: *meter, units });
            };
            if !shard.lock().take_pending(each) {
                combine(&mut taken);
            }
            for usage in taken {
                match parts.last_mut() {
                    Some(part)
                        if part.len() < max || part.last().is_some_and(|last| last.name == usage.name) =>
                    {
                        part.push(usage);
                    }
                    _ => parts.push(vec![usage]),
                }
            }
        }
        parts
    }

    /// Takes all pending usages, one after another. `each` runs with a shard locked, so it must be short.
    pub(crate) fn take_each(&self, mut each: impl FnMut(&OwnedName, &Meter, Units)) {
        for shard in &self.shards {
            shard.lock().take_pending(|name, meter, units| {
                if !units.is_reading() {
                    each(name, meter, units);
                }
            });
        }
    }

    /// Makes usages that could not be sent pending again, except those of meters that were reset in the meantime. They are in
    /// the order in which they were taken. A meter that was only to be read is listed again when it next refuses.
    pub(crate) fn put_back(&self, usages: Vec<Usage>) {
        for usage in usages.into_iter().rev().filter(|usage| !usage.units.is_reading()) {
            let fingerprint = self.fingerprints.of(&usage.name.id());
            self.shard(fingerprint).put_back(fingerprint, usage);
        }
    }

    /// Adds usages of another node. Returns how many could not be counted, because the ledger is full or the meter has other
    /// segments here.
    pub(crate) fn merge<'a>(
        &self,
        mut usages: impl Iterator<Item = (MeterId<'a>, Meter, Units)>,
        now: Timestamp,
    ) -> u64 {
        let of = |(id, meter, units): (MeterId<'a>, _, _)| (self.fingerprints.of(&id), id, meter, units);
        let shard_of = |fingerprint: &Fingerprint| fingerprint.shard(self.shards.len());
        let (mut some, mut uncounted) = (Vec::new(), 0);
        loop {
            some.clear();
            some.extend(usages.by_ref().take(MERGED_AT_ONCE).map(of));
            if some.is_empty() {
                return uncounted;
            }
            // Each shard is locked once, and memory is accessed in order. Usages of one meter keep their order.
            some.sort_by_cached_key(|usage| shard_of(&usage.0));
            for usages in some.chunk_by(|one, other| shard_of(&one.0) == shard_of(&other.0)) {
                let mut shard = self.shard(usages[0].0);
                shard.reserve(usages.iter().map(|(fingerprint, ..)| *fingerprint), now, &self.capacity);
                for (fingerprint, id, meter, units) in usages {
                    let is_counted = shard.merge((*fingerprint, id), meter, units, &self.capacity);
                    uncounted += u64::from(!is_counted);
                }
            }
        }
    }

    /// Merges the state of another node by maximum and adds what is pending here. `false` if it cannot be counted, as in
    /// [`merge`](Self::merge).
    pub(crate) fn raise(&self, id: &MeterId<'_>, meter: &Meter, state: State, now: Timestamp) -> bool {
        let fingerprint = self.fingerprints.of(id);
        let mut shard = self.shard(fingerprint);
        shard.reserve([fingerprint].into_iter(), now, &self.capacity);
        shard.raise((fingerprint, id), meter, state, &self.capacity)
    }

    /// The states in the shard with this number; `None` after the last shard.
    pub(crate) fn states(&self, shard: usize) -> Option<Vec<Known>> {
        Some(self.shards.get(shard)?.lock().states())
    }

    /// Visits a share of the meters and removes those that have expired. Called once an interval, so that meters also expire
    /// when there are few claims.
    pub(crate) fn expire(&self, now: Timestamp) {
        // A few at a time: claims wait for the lock of a shard.
        for _ in 0..=self.len() / EXPIRY_SHARE / SWEPT_METERS_LONG {
            self.sweep(&self.next_to_expire, SWEPT_METERS_LONG, self.shards.len(), now);
        }
    }

    /// Removes a few expired meters.
    #[cold]
    fn tidy(&self, now: Timestamp) {
        self.sweep(&self.next_shard, SWEPT_METERS, SWEPT_SHARDS, now);
    }

    /// Removes expired meters before new ones are inserted; more of them if the ledger is full.
    fn make_room(&self, wanted: usize, now: Timestamp) {
        self.tidy(now);
        if !self.capacity.has_room_for(wanted) {
            self.sweep(&self.next_shard, SWEPT_METERS_LONG, self.shards.len(), now);
        }
    }

    /// Visits shards in turn and removes expired meters. Skips a locked shard. The caller must not hold a lock.
    fn sweep(&self, next: &NextShard, max_meters: usize, max_shards: usize, now: Timestamp) {
        let start = next.0.load(Ordering::Relaxed);
        let (mut meters, mut shards) = (0, 0);
        while meters < max_meters && shards < max_shards.min(self.shards.len()) {
            let number = start.wrapping_add(shards) & (self.shards.len() - 1);
            shards += 1;
            if let Some(mut shard) = self.shards[number].0.try_lock() {
                meters += shard.sweep(max_meters - meters, now, &self.capacity);
            }
        }
        next.0.store(start.wrapping_add(shards), Ordering::Relaxed);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Brings the usages of each meter together, and combines those that can be sent as one: charges and refunds of one segment,
/// or of one rate. All charges of a log come first, as one usage, because its refunds are sent after them.
fn combine(taken: &mut Vec<Usage>) {
    let place = |usage: &Usage| match usage.units {
        Units::Window { segment, .. } => segment,
        Units::Log { newest, units } if units < 0 => newest.as_nanos().saturating_add(1),
        Units::Bucket { .. } | Units::Log { .. } => 0,
    };
    taken.sort_by(|one, other| one.name.id().cmp(&other.name.id()).then(place(one).cmp(&place(other))));
    for usage in std::mem::take(taken) {
        let of_meter = taken.iter_mut().rev().take(MAX_RATES).take_while(|before| before.name == usage.name);
        let mut alike = of_meter.filter(|before| counts_alike(&before.meter, &usage.meter));
        if !alike.next().is_some_and(|last| last.units.try_append(&usage.units)) {
            taken.push(usage);
        }
    }
    taken.retain(|usage| !usage.units.is_cancelled());
    // A bucket counts the units of a rate from its newest charge of any rate on.
    taken.sort_by(|one, other| {
        one.name.id().cmp(&other.name.id()).then(one.units.began().cmp(&other.units.began()))
    });
}

/// Whether the meter is a bucket that drains in steps or never.
#[inline]
fn is_in_steps(meter: &Meter) -> bool {
    matches!(meter, Meter::Bucket(bucket) if bucket.step() > 0)
}

/// Each node would start the steps of a key at the first request that it sees itself, so the units of several nodes could
/// not be added up.
#[cold]
fn cannot_count_in_steps() -> StoreError {
    let what = "nodes that count for themselves cannot agree on when a key's first request was: check this limit in a store \
         that all nodes share, directly or through leases";
    StoreError::new("the local count", ErrorKind::Unsupported, what)
}
