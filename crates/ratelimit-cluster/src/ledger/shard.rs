//! One shard of a ledger.

use hashbrown::HashTable;
use ratelimit_core::Timestamp;
use ratelimit_core::kit::OwnedName;
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::{MeterId, Mode, Refund, Verdict};
use ratelimit_memory::kit::{self, Demand, Fingerprint, LargeStates, Slab, expiry};

use super::capacity::Capacity;
use super::cold::{Cold, Meters};
use super::entry::{Entry, Outgoing};
use super::merge;
use super::slot::Slot;
use super::units::{Units, counts_alike, newest};
use super::usage::{Known, Usage};

/// One in this many claims on existing meters removes expired ones.
const TIDY_EVERY: u32 = 64;

/// If at least one in this many meters is pending, all slots are scanned in memory order: that is faster than looking up the
/// pending ones.
const SCAN_SHARE: usize = 4;

/// How many meters a sweep visits that runs as part of a claim.
pub(super) const SWEPT_METERS: usize = 8;

/// A shard. The fields that each claim needs come first, on one pair of cache lines with the lock.
#[derive(Default)]
#[repr(C)]
pub(super) struct Shard {
    charges: u32,
    /// Whether its meters may contain units that other nodes have sent, and may have refunded.
    is_merged: bool,
    table: HashTable<Slot>,
    meters: Meters,
    outgoing: Outgoing,
    colds: Slab<Cold>,
    large: LargeStates,
    /// The number of outgoing usages from which on expired ones are dropped.
    prune_at: u32,
    /// Where the next sweep starts.
    cursor: u32,
    /// The second in which all meters were visited last, because there was no room for those of other nodes.
    swept_in: u64,
}

impl Shard {
    pub(super) fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.table.find(fingerprint.low, |slot| slot.is(fingerprint)).is_some()
    }

    /// The state of an existing meter.
    pub(super) fn state(&self, fingerprint: Fingerprint) -> Option<State> {
        let slot = self.table.find(fingerprint.low, |slot| slot.is(fingerprint))?;
        Some(self.large.read(slot, State::clone))
    }

    /// Decides a claim on an existing meter.
    #[inline(always)]
    pub(super) fn claim(&mut self, fingerprint: Fingerprint, demand: Demand<'_>) -> Option<(bool, Verdict)> {
        match self.claim_in_slot(fingerprint, demand) {
            None => {
                let decided = self.open(fingerprint, |entry| entry.claim(demand));
                self.prune();
                decided
            }
            decided => decided,
        }
    }

    /// As [`claim`](Self::claim), but `None` if the state is not in the slot or the last charge was under another limit.
    #[inline(always)]
    pub(super) fn claim_in_slot(
        &mut self,
        fingerprint: Fingerprint,
        demand: Demand<'_>,
    ) -> Option<(bool, Verdict)> {
        let slot = self.table.find_mut(fingerprint.low, |slot| slot.is(fingerprint))?;
        if !self.meters.is(slot.meter, demand.meter) {
            return None;
        }
        let (admitted, verdict) = slot.claim(demand)?;
        if admitted && demand.charges() {
            // As `Entry::record_charge`, in place.
            if !slot.is_listed() {
                self.outgoing.dirty.push(slot.low);
            }
            let units = Units::of_charge(demand.meter, demand.cost, &verdict, slot.state.at());
            let (pending, before) = units.appended_to(slot.pending(demand.meter));
            slot.set_pending(Some(pending));
            if let Some(units) = before {
                let name = self.colds.at(slot.cold).name.clone();
                self.outgoing.queue.push_back((fingerprint, Usage { name, meter: *demand.meter, units }));
                self.prune();
            }
        } else if !admitted && demand.mode == Mode::Charge {
            self.outgoing.list_reading(slot);
        }
        Some((admitted, verdict))
    }

    /// Records that a claim on the meter was refused, if there is one.
    pub(super) fn refused(&mut self, fingerprint: Fingerprint) {
        if let Some(slot) = self.table.find_mut(fingerprint.low, |slot| slot.is(fingerprint)) {
            self.outgoing.list_reading(slot);
        }
    }

    /// Counts a claim. Returns whether the caller has to remove expired meters.
    #[inline]
    pub(super) fn has_to_tidy(&mut self) -> bool {
        self.charges = self.charges.wrapping_add(1);
        self.charges.is_multiple_of(TIDY_EVERY)
    }

    /// Inserts a new meter. `false` if the ledger is full.
    pub(super) fn insert(
        &mut self,
        fingerprint: Fingerprint,
        id: &MeterId<'_>,
        meter: &Meter,
        capacity: &Capacity,
    ) -> bool {
        if !capacity.reserve() {
            return false;
        }
        let base = match kit::Slot::fresh(fingerprint, meter, Timestamp::EPOCH) {
            Some((base, _)) => base,
            None => self.large.insert(fingerprint, meter.fresh()),
        };
        let cold = self.colds.insert(Cold { name: OwnedName::new(id), shared: None });
        let slot = Slot::new(base, self.meters.acquire(meter), cold);
        self.table.insert_unique(fingerprint.low, slot, |slot| slot.low);
        // So that a charge of an existing meter allocates nothing.
        self.prune();
        let length = self.outgoing.dirty.len();
        self.outgoing.dirty.reserve(self.table.len().saturating_sub(length));
        true
    }

    /// Calls `f` with an existing meter and stores its changes.
    pub(super) fn open<R>(
        &mut self,
        fingerprint: Fingerprint,
        f: impl FnOnce(&mut Entry<'_>) -> R,
    ) -> Option<R> {
        let slot = self.table.find_mut(fingerprint.low, |slot| slot.is(fingerprint))?;
        let number = slot.meter;
        let meter = *self.meters.at(number);
        let (state, pending) = (self.large.take(slot), slot.pending(&meter));
        let (colds, outgoing, is_merged) = (&mut self.colds, &mut self.outgoing, self.is_merged);
        let mut entry = Entry { fingerprint, state, meter, pending, slot, colds, outgoing, is_merged };
        let result = f(&mut entry);
        let Entry { state, meter, pending, slot, .. } = entry;
        self.large.keep(slot, state);
        slot.set_pending(pending);
        if !self.meters.is(number, &meter) {
            slot.meter = self.meters.acquire(&meter);
            self.meters.release(number);
        }
        Some(result)
    }

    pub(super) fn refund(&mut self, fingerprint: Fingerprint, refund: &Refund<'_>, now: Timestamp) {
        self.open(fingerprint, |entry| entry.refund(refund, now));
        self.prune();
    }

    /// Removes a meter. Its pending units are removed, too, or are still to be sent.
    pub(super) fn remove(&mut self, fingerprint: Fingerprint, keeps_pending: bool, capacity: &Capacity) {
        if keeps_pending {
            self.open(fingerprint, |entry| entry.queue_pending());
        } else {
            self.outgoing.queue.retain(|(of, _)| *of != fingerprint);
        }
        if let Ok(found) = self.table.find_entry(fingerprint.low, |slot| slot.is(fingerprint)) {
            let (slot, _) = found.remove();
            self.removed(&slot, capacity);
        }
    }

    fn removed(&mut self, slot: &Slot, capacity: &Capacity) {
        self.colds.remove(slot.cold);
        self.large.remove(slot);
        self.meters.release(slot.meter);
        capacity.release();
    }

    /// Takes all pending usages, and one without units of each meter that only has to be read. Returns whether there was at
    /// most one for each meter.
    pub(super) fn take_pending(&mut self, mut each: impl FnMut(&OwnedName, &Meter, Units)) -> bool {
        let is_each_once = self.outgoing.queue.is_empty();
        for (_, usage) in self.outgoing.queue.drain(..).filter(|(_, usage)| !usage.units.is_nothing()) {
            each(&usage.name, &usage.meter, usage.units);
        }
        let (colds, meters) = (&self.colds, &self.meters);
        let mut take = |slot: &mut Slot| {
            let meter = meters.at(slot.meter);
            let units = slot.take_pending(meter);
            if let Some(units) = units.filter(|units| !units.is_cancelled()) {
                each(&colds.at(slot.cold).name, meter, units);
            }
        };
        if self.outgoing.dirty.len() > self.table.len() / SCAN_SHARE {
            // In memory order.
            self.outgoing.dirty.clear();
            self.table.iter_mut().filter(|slot| slot.is_listed()).for_each(take);
        } else {
            for low in self.outgoing.dirty.drain(..) {
                // There may be none: the meter may have been removed.
                let found = self.table.find_mut(low, |slot| slot.low == low && slot.is_listed());
                found.into_iter().for_each(&mut take);
            }
        }
        self.outgoing.queue.shrink_to(64);
        self.prune_at = self.prune_at.min(u32::try_from(2 * self.table.len()).unwrap_or(u32::MAX));
        is_each_once
    }

    /// Makes a usage that could not be sent pending again. It is older than all that is pending of its meter now.
    pub(super) fn put_back(&mut self, fingerprint: Fingerprint, mut usage: Usage) {
        self.open(fingerprint, |entry| {
            // Some usages of the meter may be in the queue, so this one must not go behind them.
            if entry.outgoing.queue.is_empty() && counts_alike(&entry.meter, &usage.meter) {
                match &mut entry.pending {
                    None => return entry.add_pending(usage.units),
                    Some(later) if usage.units.try_append(later) => {
                        *later = usage.units;
                        return;
                    }
                    Some(_) => {}
                }
            }
            entry.outgoing.queue.push_front((fingerprint, usage));
        });
        self.prune();
    }

    /// Calls `f` with a meter of another node, which is inserted if necessary. `false` if the ledger is full, or `f` returns it.
    fn open_or_insert(
        &mut self,
        (fingerprint, id): (Fingerprint, &MeterId<'_>),
        meter: &Meter,
        capacity: &Capacity,
        f: impl FnOnce(&mut Entry<'_>) -> bool,
    ) -> bool {
        self.is_merged = true;
        (self.contains(fingerprint) || self.insert(fingerprint, id, meter, capacity))
            && self.open(fingerprint, f).is_some_and(|is_done| is_done)
    }

    /// Grows the table for the new ones among these meters before they are merged. This also reads the slots of all meters: the
    /// processor overlaps these cache misses, which the merges would take one after another.
    ///
    /// First removes expired meters, as before a claim on a new one; if that makes no room, all of them, at most once a second.
    pub(super) fn reserve(
        &mut self,
        fingerprints: impl Iterator<Item = Fingerprint>,
        now: Timestamp,
        capacity: &Capacity,
    ) {
        let unknown: usize = fingerprints.map(|fingerprint| usize::from(!self.contains(fingerprint))).sum();
        self.sweep(unknown * SWEPT_METERS, now, capacity);
        let second = now.as_nanos() / 1_000_000_000;
        if unknown > capacity.available() && self.swept_in != second {
            self.swept_in = second;
            self.sweep(usize::MAX, now, capacity);
        }
        self.table.reserve(unknown.min(capacity.available()), |slot| slot.low);
    }

    /// Adds units of another node. `false` if they cannot be counted: the ledger is full, or the meter has other segments here.
    pub(super) fn merge(
        &mut self,
        of: (Fingerprint, &MeterId<'_>),
        meter: &Meter,
        units: &Units,
        capacity: &Capacity,
    ) -> bool {
        self.open_or_insert(of, meter, capacity, |entry| {
            if !entry.accepts(meter) {
                return false;
            }
            merge::add(meter, &mut entry.state, units);
            entry.keep_until(meter.forget_at(&entry.state));
            true
        })
    }

    /// Raises the state of a meter to that of another node plus what is pending here.
    pub(super) fn raise(
        &mut self,
        of: (Fingerprint, &MeterId<'_>),
        meter: &Meter,
        mut state: State,
        capacity: &Capacity,
    ) -> bool {
        self.open_or_insert(of, meter, capacity, |entry| {
            if !meter.owns(&state) || !entry.accepts(meter) {
                return false;
            }
            let queue = entry.outgoing.queue.iter().filter(|(of, _)| *of == entry.fingerprint);
            for (_, usage) in queue {
                merge::add(&usage.meter, &mut state, &usage.units);
            }
            if let Some(units) = &entry.pending {
                merge::add(&entry.meter, &mut state, units);
            }
            merge::raise(meter, &mut entry.state, &state);
            entry.keep_until(meter.forget_at(&entry.state));
            true
        })
    }

    pub(super) fn states(&self) -> Vec<Known> {
        let known = |slot: &Slot| Known {
            name: self.colds.at(slot.cold).name.clone(),
            meter: *self.meters.at(slot.meter),
            state: self.large.read(slot, State::clone),
        };
        self.table.iter().map(known).collect()
    }

    /// Visits up to `max` further meters and removes the expired ones. Returns how many it visited.
    pub(super) fn sweep(&mut self, max: usize, now: Timestamp, capacity: &Capacity) -> usize {
        let (mut visited, mut steps) = (0, self.table.num_buckets());
        let (mut cursor, most) = (self.cursor as usize, max.min(self.table.len()));
        while visited < most && steps > 0 {
            steps -= 1;
            if cursor >= self.table.num_buckets() {
                cursor = 0;
            }
            if let Ok(found) = self.table.get_bucket_entry(cursor) {
                visited += 1;
                if expiry::has_passed(found.get().forget_at, now) {
                    let (slot, _) = found.remove();
                    self.removed(&slot, capacity);
                }
            }
            cursor += 1;
        }
        self.cursor = u32::try_from(cursor).unwrap_or(0);
        if self.table.capacity() > 64 && self.table.capacity() / 8 > self.table.len() {
            self.shrink();
        }
        visited
    }

    /// Frees memory. The remaining cold parts and meters get new numbers.
    fn shrink(&mut self) {
        self.table.shrink_to(self.table.len() * 2, |slot| slot.low);
        let (mut colds, meters) = (std::mem::take(&mut self.colds), std::mem::take(&mut self.meters));
        for slot in self.table.iter_mut() {
            slot.meter = self.meters.acquire(meters.at(slot.meter));
            slot.cold = self.colds.insert(colds.remove(slot.cold));
        }
        self.large.shrink_to_fit();
        self.list_dirty();
        self.outgoing.dirty.shrink_to(self.table.len());
    }

    /// Lists the meters with pending units, or to be read, anew, without those that were removed.
    fn list_dirty(&mut self) {
        self.outgoing.dirty.clear();
        self.outgoing.dirty.extend(self.table.iter().filter(|slot| slot.is_listed()).map(|slot| slot.low));
    }

    /// Drops usages that have left their window and combines those of one rate, in case pending usages are not taken for long.
    pub(super) fn prune(&mut self) {
        let pending = |outgoing: &Outgoing| outgoing.queue.len() + outgoing.dirty.len();
        if pending(&self.outgoing) <= self.prune_at.max(1_024) as usize {
            return;
        }
        let mut queue = Vec::from(std::mem::take(&mut self.outgoing.queue));
        queue.retain(|(fingerprint, usage)| {
            let slot = self.table.find(fingerprint.low, |slot| slot.is(*fingerprint));
            slot.is_some_and(|slot| !usage.units.have_left(&usage.meter, self.large.read(slot, newest)))
        });
        // Brings those of one meter together, in their order.
        queue.sort_by_key(|(fingerprint, _)| (fingerprint.low, fingerprint.high));
        for (fingerprint, usage) in queue {
            let mut of_meter = self.outgoing.queue.iter_mut().rev().take_while(|(of, _)| *of == fingerprint);
            let last = of_meter.find(|(_, before)| counts_alike(&before.meter, &usage.meter));
            if !last.is_some_and(|(_, before)| before.units.try_append(&usage.units)) {
                self.outgoing.queue.push_back((fingerprint, usage));
            }
        }
        self.list_dirty();
        self.prune_at = u32::try_from(2 * pending(&self.outgoing)).unwrap_or(u32::MAX);
    }
}
