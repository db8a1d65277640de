//! One shard of a ledger.

use hashbrown::HashTable;
use ratelimit_core::{Claim, Meter, MeterId, Mode, Refund, State, Timestamp, Verdict};

use super::capacity::Capacity;
use super::entry::{Entry, Outgoing};
use super::fingerprint::Fingerprint;
use super::merge;
use super::slab::{Cold, Meters, Slab};
use super::slot::Slot;
use super::units::{Units, counts_alike};
use super::usage::{Known, Usage};
use ratelimit_core::kit::OwnedName;

/// One in this many claims on existing meters removes expired ones.
const TIDY_EVERY: u32 = 64;

/// If at least one in this many meters is pending, all slots are scanned in memory order: that is faster than looking up the
/// pending ones.
const SCAN_SHARE: usize = 4;

/// A shard. The fields that each claim needs come first, on one pair of cache lines with the lock.
#[derive(Default)]
#[repr(C)]
pub(super) struct Shard {
    charges: u32,
    /// Whether there are new pending usages since the flag was last taken.
    has_new_pending: bool,
    table: HashTable<Slot>,
    meters: Meters,
    outgoing: Outgoing,
    colds: Slab<Cold>,
    /// The number of outgoing usages from which on expired ones are dropped.
    prune_at: u32,
    /// Where the next sweep starts.
    cursor: u32,
}

impl Shard {
    pub(super) fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.table.find(fingerprint.hash, |slot| slot.is(fingerprint)).is_some()
    }

    /// The state of an existing meter for a limit, fresh if the limit is of another kind.
    pub(super) fn state_for(&self, fingerprint: Fingerprint, meter: &Meter) -> Option<State> {
        let slot = self.table.find(fingerprint.hash, |slot| slot.is(fingerprint))?;
        let state = self.colds.at(slot.cold).state(slot);
        Some(if meter.owns(&state) { state } else { meter.fresh() })
    }

    /// Decides a claim on an existing meter. The last value is whether the caller has to remove expired meters.
    pub(super) fn claim(
        &mut self,
        fingerprint: Fingerprint,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict, bool)> {
        self.claim_in_slot(fingerprint, claim, now, mode)
            .or_else(|| self.claim_in_entry(fingerprint, claim, now, mode))
    }

    /// As [`claim`](Self::claim), for a state in the cold part, or a meter whose last charge was under another limit.
    pub(super) fn claim_in_entry(
        &mut self,
        fingerprint: Fingerprint,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict, bool)> {
        let opened = self.open(fingerprint, |entry, outgoing| entry.claim(claim, now, mode, outgoing));
        let (admitted, verdict) = opened?;
        Some((admitted, verdict, self.has_to_tidy()))
    }

    /// As [`claim`](Self::claim), but `None` if the state is in the cold part or the last charge was under another limit.
    #[inline(always)]
    pub(super) fn claim_in_slot(
        &mut self,
        fingerprint: Fingerprint,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict, bool)> {
        let slot = self.table.find_mut(fingerprint.hash, |slot| slot.is(fingerprint))?;
        if !self.meters.is(slot.meter, &claim.meter) {
            return None;
        }
        let (admitted, verdict) = slot.claim(claim, now, mode)?;
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            // As `Entry::record_charge`, in place.
            slot.keep_until(verdict.reset_at);
            if !slot.is_pending() {
                self.outgoing.mark_dirty(slot.cold);
                self.has_new_pending = true;
            }
            let units = Units::of_charge(&claim.meter, claim.cost, &verdict, slot.at());
            let (pending, before) = units.appended_to(slot.pending(&claim.meter));
            slot.set_pending(Some(pending));
            if let Some(units) = before {
                let name = self.colds.at(slot.cold).name.clone();
                self.outgoing.push(fingerprint, Usage { name, meter: claim.meter, units });
                self.has_new_pending = true;
            }
        }
        Some((admitted, verdict, self.has_to_tidy()))
    }

    /// Counts a claim. Returns whether the caller has to remove expired meters.
    #[inline]
    fn has_to_tidy(&mut self) -> bool {
        self.charges = self.charges.wrapping_add(1);
        self.charges.is_multiple_of(TIDY_EVERY)
    }

    /// Inserts a new meter. `false` if the ledger is full.
    pub(super) fn insert(
        &mut self,
        fingerprint: Fingerprint,
        name: impl FnOnce() -> OwnedName,
        meter: &Meter,
        capacity: &Capacity,
    ) -> bool {
        if !capacity.reserve() {
            return false;
        }
        let number = self.colds.insert(Cold::new(name(), fingerprint.hash));
        let mut slot = Slot::new(fingerprint, meter, self.meters.acquire(meter), number);
        if slot.is_large() {
            self.colds.at_mut(number).keep_state(&mut slot, meter.fresh());
        }
        self.table.insert_unique(fingerprint.hash, slot, |slot| slot.fingerprint().hash);
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
        f: impl FnOnce(&mut Entry<'_>, &mut Outgoing) -> R,
    ) -> Option<R> {
        let slot = self.table.find_mut(fingerprint.hash, |slot| slot.is(fingerprint))?;
        let (before, outgoing) = (slot.meter, self.outgoing.len());
        let cold = self.colds.at_mut(slot.cold);
        let mut entry = Entry::open(slot, *self.meters.at(before), cold);
        let result = f(&mut entry, &mut self.outgoing);
        let meter = entry.close();
        self.has_new_pending |= self.outgoing.len() > outgoing;
        if !self.meters.is(before, &meter) {
            slot.meter = self.meters.acquire(&meter);
            self.meters.release(before);
        }
        Some(result)
    }

    pub(super) fn refund(&mut self, fingerprint: Fingerprint, refund: &Refund<'_>, now: Timestamp) {
        self.open(fingerprint, |entry, outgoing| entry.refund(refund, now, outgoing));
        self.prune();
    }

    /// Removes a meter and its pending units.
    pub(super) fn remove(&mut self, fingerprint: Fingerprint, capacity: &Capacity) {
        if let Ok(found) = self.table.find_entry(fingerprint.hash, |slot| slot.is(fingerprint)) {
            let (slot, _) = found.remove();
            self.removed(&slot, capacity);
        }
        self.outgoing.queue.retain(|(of, _)| *of != fingerprint);
    }

    fn removed(&mut self, slot: &Slot, capacity: &Capacity) {
        self.colds.remove(slot.cold);
        self.meters.release(slot.meter);
        capacity.release();
    }

    /// Returns whether there are new pending usages since the last call.
    #[inline]
    pub(super) fn take_has_new_pending(&mut self) -> bool {
        std::mem::take(&mut self.has_new_pending)
    }

    /// Takes all pending usages. Returns whether there was at most one for each meter.
    pub(super) fn take_pending(&mut self, mut each: impl FnMut(&OwnedName, &Meter, Units)) -> bool {
        let is_each_once = self.outgoing.queue.is_empty();
        for (_, usage) in self.outgoing.queue.drain(..) {
            each(&usage.name, &usage.meter, usage.units);
        }
        let (colds, meters) = (&self.colds, &self.meters);
        let mut take = |slot: &mut Slot| {
            let meter = meters.at(slot.meter);
            let units = slot.pending(meter);
            slot.set_pending(None);
            if let Some(units) = units.filter(|units| !units.is_nothing()) {
                each(&colds.at(slot.cold).name, meter, units);
            }
        };
        if self.outgoing.dirty.len() >= self.table.len() / SCAN_SHARE {
            // In memory order.
            self.outgoing.dirty.clear();
            self.table.iter_mut().filter(|slot| slot.is_pending()).for_each(take);
        } else {
            for number in self.outgoing.dirty.drain(..) {
                // The meter may have been removed, and its number reused.
                let Some(cold) = colds.find(number) else { continue };
                self.table.find_mut(cold.hash, |slot| slot.cold == number).into_iter().for_each(&mut take);
            }
        }
        self.outgoing.queue.shrink_to(64);
        is_each_once
    }

    /// Makes a usage that could not be sent pending again. It is older than what is pending now.
    pub(super) fn put_back(&mut self, fingerprint: Fingerprint, usage: Usage) {
        self.open(fingerprint, |entry, outgoing| {
            if !counts_alike(&entry.meter, &usage.meter) {
                return outgoing.push(fingerprint, usage);
            }
            match entry.pending.take() {
                None => entry.add_pending(usage.units, outgoing),
                Some(later) => {
                    let (pending, before) = later.appended_to(Some(usage.units));
                    entry.pending = Some(pending);
                    if before.is_some() {
                        outgoing.push(fingerprint, usage);
                    }
                }
            }
        });
        self.prune();
    }

    /// Calls `f` with a meter, which is inserted if necessary. `false` if the ledger is full, or `f` returns it.
    fn open_or_insert(
        &mut self,
        (fingerprint, id): (Fingerprint, &MeterId<'_>),
        meter: &Meter,
        capacity: &Capacity,
        f: impl FnOnce(&mut Entry<'_>, &mut Outgoing) -> bool,
    ) -> bool {
        (self.contains(fingerprint) || self.insert(fingerprint, || OwnedName::new(id), meter, capacity))
            && self.open(fingerprint, f).is_some_and(|is_done| is_done)
    }

    /// Grows the table for the new ones among these meters before they are merged. This also reads the slots of all meters: the
    /// processor overlaps these cache misses, which the merges would take one after another.
    pub(super) fn reserve(&mut self, fingerprints: impl Iterator<Item = Fingerprint>, capacity: &Capacity) {
        let unknown: usize = fingerprints.map(|fingerprint| usize::from(!self.contains(fingerprint))).sum();
        self.table.reserve(unknown.min(capacity.available()), |slot| slot.fingerprint().hash);
    }

    /// Adds units of another node. `false` if they cannot be counted: the ledger is full, or the meter has other segments here.
    pub(super) fn merge(
        &mut self,
        of: (Fingerprint, &MeterId<'_>),
        meter: &Meter,
        units: &Units,
        capacity: &Capacity,
    ) -> bool {
        if let Some(slot) = self.table.find_mut(of.0.hash, |slot| slot.is(of.0))
            && self.meters.is(slot.meter, meter)
            && let Some(mut state) = slot.state()
            && meter.owns(&state)
        {
            // As below, but in the slot.
            merge::add(meter, &mut state, units);
            slot.keep_until(meter.forget_at(&state));
            if !slot.keep(&state) {
                self.colds.at_mut(slot.cold).keep_state(slot, state);
            }
            return true;
        }
        self.open_or_insert(of, meter, capacity, |entry, _| {
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
        self.open_or_insert(of, meter, capacity, |entry, outgoing| {
            if !meter.owns(&state) || !entry.accepts(meter) {
                return false;
            }
            for (_, usage) in
                outgoing.queue.iter().filter(|(fingerprint, _)| *fingerprint == entry.fingerprint)
            {
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
        let known = |slot: &Slot| {
            let cold = self.colds.at(slot.cold);
            Known { name: cold.name.clone(), meter: *self.meters.at(slot.meter), state: cold.state(slot) }
        };
        self.table.iter().map(known).collect()
    }

    /// Visits up to `max` further meters and removes the expired ones. Returns how many it visited.
    pub(super) fn sweep(&mut self, max: usize, now: Timestamp, capacity: &Capacity) -> usize {
        let (mut visited, mut steps) = (0, self.table.num_buckets());
        let mut cursor = self.cursor as usize;
        while visited < max.min(self.table.len()) && steps > 0 {
            steps -= 1;
            if cursor >= self.table.num_buckets() {
                cursor = 0;
            }
            if let Ok(found) = self.table.get_bucket_entry(cursor) {
                visited += 1;
                if found.get().is_expired(now) {
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

    /// Frees memory. The remaining meters get new numbers.
    fn shrink(&mut self) {
        self.table.shrink_to(self.table.len() * 2, |slot| slot.fingerprint().hash);
        let (mut colds, meters) = (std::mem::take(&mut self.colds), std::mem::take(&mut self.meters));
        self.outgoing.dirty = Vec::with_capacity(self.table.len());
        for slot in self.table.iter_mut() {
            slot.meter = self.meters.acquire(meters.at(slot.meter));
            let cold = colds.remove(slot.cold);
            slot.cold = self.colds.insert(cold.expect("a slot refers to an existing value"));
            self.outgoing.dirty.extend(slot.is_pending().then_some(slot.cold));
        }
    }

    /// Drops usages that have left their window, in case pending usages are not taken for long.
    fn prune(&mut self) {
        let Outgoing { dirty, queue, .. } = &mut self.outgoing;
        if queue.len() + dirty.len() <= self.prune_at.max(1_024) as usize {
            return;
        }
        let (table, colds) = (&self.table, &self.colds);
        queue.retain(|(fingerprint, usage)| {
            let slot = table.find(fingerprint.hash, |slot| slot.is(*fingerprint));
            slot.is_some_and(|slot| usage.matters_to(&colds.at(slot.cold).state(slot)))
        });
        dirty.sort_unstable();
        dirty.dedup();
        dirty.retain(|number| {
            let cold = colds.find(*number);
            let slot = cold.and_then(|cold| table.find(cold.hash, |slot| slot.cold == *number));
            slot.is_some_and(Slot::is_pending)
        });
        self.prune_at = u32::try_from(2 * (queue.len() + dirty.len())).unwrap_or(u32::MAX);
    }
}
