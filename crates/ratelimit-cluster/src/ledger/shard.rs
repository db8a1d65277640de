//! One part of a ledger: the meters whose names' fingerprints fall to it.

use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use ratelimit_core::{Claim, Meter, MeterId, Mode, Refund, State, Timestamp, Verdict};

use super::entry::{Entry, Tellings, begun, counts_alike};
use super::print::Print;
use super::slab::{Cold, Meters, Slab};
use super::slot::Slot;
use super::units::Units;
use super::{Known, Usage, merge};
use crate::names::Name;

/// One in so many charges of a known meter tidies up.
const TIDY_EVERY: u32 = 64;

/// If one in so many meters has something to tell, all are looked at in the order in which they lie in memory, which takes
/// less time than to look up the few.
const FEW: usize = 4;

/// A part of a ledger. What each claim needs comes first, on one pair of cache lines with the lock.
#[derive(Default)]
#[repr(C)]
pub(super) struct Shard {
    charges: u32,
    /// Whether something came to be told since this was last asked.
    has_news: bool,
    table: HashTable<Slot>,
    meters: Meters,
    tellings: Tellings,
    colds: Slab<Cold>,
    /// From how many tellings on those are dropped that nobody needs any more.
    crowded: u32,
    /// Where the walk goes on.
    cursor: u32,
}

/// How many meters there are in all parts, and may be.
pub(super) struct Room {
    taken: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn is_there_for(&self, wanted: usize) -> bool {
        self.taken().saturating_add(wanted) <= self.most
    }

    fn left(&self) -> usize {
        self.most.saturating_sub(self.taken())
    }

    fn take(&self) -> bool {
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn free(&self, count: usize) {
        self.taken.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Shard {
    pub(super) fn is_known(&self, print: Print) -> bool {
        self.table.find(print.hash, |slot| slot.is(print)).is_some()
    }

    /// The state of a meter that is known, as a limit sees it.
    pub(super) fn state_for(&self, print: Print, meter: &Meter) -> Option<State> {
        let slot = self.table.find(print.hash, |slot| slot.is(print))?;
        let state = self.colds.at(slot.cold).state(slot);
        Some(if meter.owns(&state) { state } else { meter.fresh() })
    }

    /// Decides a claim on a meter that is known. With it comes whether it is time to tidy up.
    pub(super) fn claim(
        &mut self,
        print: Print,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict, bool)> {
        self.claim_here(print, claim, now, mode).or_else(|| self.claim_opened(print, claim, now, mode))
    }

    /// The same for one whose state is elsewhere, or that counted otherwise when it was charged last.
    pub(super) fn claim_opened(
        &mut self,
        print: Print,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict, bool)> {
        let opened = self.open(print, |entry, tellings| entry.claim(claim, now, mode, tellings));
        let (admitted, verdict) = opened?;
        Some((admitted, verdict, self.has_to_tidy()))
    }

    /// The same, unless the state is elsewhere, or the meter counted otherwise when it was charged last.
    #[inline(always)]
    pub(super) fn claim_here(
        &mut self,
        print: Print,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict, bool)> {
        let slot = self.table.find_mut(print.hash, |slot| slot.is(print))?;
        if !self.meters.is(slot.meter, &claim.meter) {
            return None;
        }
        let (admitted, verdict) = slot.claim(claim, now, mode)?;
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            // As `Entry::charged`, in place.
            slot.keep_until(verdict.reset_at);
            if !slot.is_pending() {
                self.tellings.note(slot.cold);
                self.has_news = true;
            }
            let units = Units::of_charge(&claim.meter, claim.cost, &verdict, slot.at());
            let (pending, before) = units.after(slot.pending(&claim.meter));
            slot.pend(Some(pending));
            if let Some(units) = before {
                let name = self.colds.at(slot.cold).name.clone();
                self.tellings.send(print, Usage { name, meter: claim.meter, units });
                self.has_news = true;
            }
        }
        Some((admitted, verdict, self.has_to_tidy()))
    }

    /// Counts a claim. Whether it is time to tidy up.
    #[inline]
    fn has_to_tidy(&mut self) -> bool {
        self.charges = self.charges.wrapping_add(1);
        self.charges.is_multiple_of(TIDY_EVERY)
    }

    /// Makes a meter known that is not. `false` if there is no room for it.
    pub(super) fn make(
        &mut self,
        print: Print,
        name: impl FnOnce() -> Name,
        meter: &Meter,
        room: &Room,
    ) -> bool {
        if !room.take() {
            return false;
        }
        let number = self.colds.insert(Cold::new(name(), print.hash));
        let mut slot = Slot::new(print, self.meters.take(meter), number);
        self.colds.at_mut(number).keep_state(&mut slot, begun(meter));
        self.table.insert_unique(print.hash, slot, |slot| slot.print().hash);
        // So that a charge of a known meter allocates nothing.
        self.drop_late();
        let length = self.tellings.dirty.len();
        self.tellings.dirty.reserve(self.table.len().saturating_sub(length));
        true
    }

    /// Looks at a meter that is known, and keeps what it has become.
    pub(super) fn open<R>(
        &mut self,
        print: Print,
        look: impl FnOnce(&mut Entry<'_>, &mut Tellings) -> R,
    ) -> Option<R> {
        let slot = self.table.find_mut(print.hash, |slot| slot.is(print))?;
        let (before, told) = (slot.meter, self.tellings.len());
        let cold = self.colds.at_mut(slot.cold);
        let mut entry = Entry::open(slot, *self.meters.at(before), cold);
        let done = look(&mut entry, &mut self.tellings);
        let meter = entry.close();
        self.has_news |= self.tellings.len() > told;
        if !self.meters.is(before, &meter) {
            slot.meter = self.meters.take(&meter);
            self.meters.give_back(before);
        }
        Some(done)
    }

    pub(super) fn refund(&mut self, print: Print, refund: &Refund<'_>, now: Timestamp) {
        self.open(print, |entry, tellings| entry.refund(refund, now, tellings));
        self.drop_late();
    }

    /// Forgets a meter, and what has not been told of it.
    pub(super) fn remove(&mut self, print: Print, room: &Room) {
        if let Ok(found) = self.table.find_entry(print.hash, |slot| slot.is(print)) {
            let (slot, _) = found.remove();
            self.removed(&slot, room);
        }
        self.tellings.outbox.retain(|(of, _)| *of != print);
    }

    fn removed(&mut self, slot: &Slot, room: &Room) {
        self.colds.remove(slot.cold);
        self.meters.give_back(slot.meter);
        room.free(1);
    }

    /// Whether something came to be told since this was last asked.
    #[inline]
    pub(super) fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Gives what has to be told, which then counts as told; whether each meter came once.
    pub(super) fn take(&mut self, mut each: impl FnMut(&Name, &Meter, Units)) -> bool {
        let is_each_once = self.tellings.outbox.is_empty();
        for (_, usage) in self.tellings.outbox.drain(..) {
            each(&usage.name, &usage.meter, usage.units);
        }
        let (colds, meters) = (&self.colds, &self.meters);
        let mut tell = |slot: &mut Slot| {
            let meter = meters.at(slot.meter);
            let units = slot.pending(meter);
            slot.pend(None);
            if let Some(units) = units.filter(|units| !units.is_nothing()) {
                each(&colds.at(slot.cold).name, meter, units);
            }
        };
        if self.tellings.dirty.len() >= self.table.len() / FEW {
            // As they lie in memory.
            self.tellings.dirty.clear();
            self.table.iter_mut().filter(|slot| slot.is_pending()).for_each(tell);
        } else {
            for number in self.tellings.dirty.drain(..) {
                // It may have been forgotten since, and its number given again.
                let Some(cold) = colds.find(number) else { continue };
                self.table.find_mut(cold.hash, |slot| slot.cold == number).into_iter().for_each(&mut tell);
            }
        }
        self.tellings.outbox.shrink_to(64);
        is_each_once
    }

    /// Makes pending again what could not be told. It came before what is pending now.
    pub(super) fn put_back(&mut self, print: Print, usage: Usage) {
        self.open(print, |entry, tellings| {
            if !counts_alike(&entry.meter, &usage.meter) {
                return tellings.send(print, usage);
            }
            match entry.pending.take() {
                None => entry.note(usage.units, tellings),
                Some(later) => {
                    let (pending, before) = later.after(Some(usage.units));
                    entry.pending = Some(pending);
                    if before.is_some() {
                        tellings.send(print, usage);
                    }
                }
            }
        });
        self.drop_late();
    }

    /// Looks at a meter, which is made if it is not known. `false` if there is no room for it.
    fn open_or_make(
        &mut self,
        (print, id): (Print, &MeterId<'_>),
        meter: &Meter,
        room: &Room,
        look: impl FnOnce(&mut Entry<'_>, &mut Tellings) -> bool,
    ) -> bool {
        (self.is_known(print) || self.make(print, || Name::new(id), meter, room))
            && self.open(print, look).is_some_and(|is_well| is_well)
    }

    /// Makes room in the table for those of these meters that are not known, before they are merged. That looks at the slots
    /// of all, and these looks wait for memory together, where each merge would wait for its own.
    pub(super) fn reserve(&mut self, prints: impl Iterator<Item = Print>, room: &Room) {
        let unknown: usize = prints.map(|print| usize::from(!self.is_known(print))).sum();
        self.table.reserve(unknown.min(room.left()), |slot| slot.print().hash);
    }

    /// Adds what was charged elsewhere. `false` if it cannot be counted: there is no room, or the meter counts otherwise.
    pub(super) fn merge(
        &mut self,
        of: (Print, &MeterId<'_>),
        meter: &Meter,
        units: &Units,
        room: &Room,
    ) -> bool {
        if let Some(slot) = self.table.find_mut(of.0.hash, |slot| slot.is(of.0))
            && self.meters.is(slot.meter, meter)
            && let Some(mut state) = slot.state()
            && meter.owns(&state)
        {
            // As below, in place.
            merge::add(meter, &mut state, units);
            slot.keep_until(meter.forget_at(&state));
            if !slot.keep(&state) {
                self.colds.at_mut(slot.cold).keep_state(slot, state);
            }
            return true;
        }
        self.open_or_make(of, meter, room, |entry, _| {
            if !entry.takes(meter) {
                return false;
            }
            merge::add(meter, &mut entry.state, units);
            entry.keep_until(meter.forget_at(&entry.state));
            true
        })
    }

    /// Raises what is known of a meter to what another node knows, beside which is counted what was not told yet.
    pub(super) fn raise(
        &mut self,
        of: (Print, &MeterId<'_>),
        meter: &Meter,
        mut state: State,
        room: &Room,
    ) -> bool {
        self.open_or_make(of, meter, room, |entry, tellings| {
            if !meter.owns(&state) || !entry.takes(meter) {
                return false;
            }
            for (_, usage) in tellings.outbox.iter().filter(|(print, _)| *print == entry.print) {
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

    /// Looks at up to `most` meters further on the walk, and forgets those that are over. Tells how many it looked at.
    pub(super) fn sweep(&mut self, most: usize, now: Timestamp, room: &Room) -> usize {
        let (mut looks, mut steps) = (0, self.table.num_buckets());
        let mut cursor = self.cursor as usize;
        while looks < most.min(self.table.len()) && steps > 0 {
            steps -= 1;
            if cursor >= self.table.num_buckets() {
                cursor = 0;
            }
            if let Ok(found) = self.table.get_bucket_entry(cursor) {
                looks += 1;
                if found.get().is_over(now) {
                    let (slot, _) = found.remove();
                    self.removed(&slot, room);
                }
            }
            cursor += 1;
        }
        self.cursor = u32::try_from(cursor).unwrap_or(0);
        if self.table.capacity() > 64 && self.table.capacity() / 8 > self.table.len() {
            self.shrink();
        }
        looks
    }

    /// Gives memory back: what is left gets new numbers.
    fn shrink(&mut self) {
        self.table.shrink_to(self.table.len() * 2, |slot| slot.print().hash);
        let (mut colds, meters) = (std::mem::take(&mut self.colds), std::mem::take(&mut self.meters));
        self.tellings.dirty = Vec::with_capacity(self.table.len());
        for slot in self.table.iter_mut() {
            slot.meter = self.meters.take(meters.at(slot.meter));
            let cold = colds.remove(slot.cold);
            slot.cold = self.colds.insert(cold.expect("a slot refers to what is there"));
            self.tellings.dirty.extend(slot.is_pending().then_some(slot.cold));
        }
    }

    /// While nobody takes what there is to tell, what has left its window in the meantime is dropped.
    fn drop_late(&mut self) {
        let Tellings { dirty, outbox, .. } = &mut self.tellings;
        if outbox.len() + dirty.len() <= self.crowded.max(1_024) as usize {
            return;
        }
        let (table, colds) = (&self.table, &self.colds);
        outbox.retain(|(print, usage)| {
            let slot = table.find(print.hash, |slot| slot.is(*print));
            slot.is_some_and(|slot| usage.matters_to(&colds.at(slot.cold).state(slot)))
        });
        dirty.sort_unstable();
        dirty.dedup();
        dirty.retain(|number| {
            let cold = colds.find(*number);
            let slot = cold.and_then(|cold| table.find(cold.hash, |slot| slot.cold == *number));
            slot.is_some_and(Slot::is_pending)
        });
        self.crowded = u32::try_from(2 * (outbox.len() + dirty.len())).unwrap_or(u32::MAX);
    }
}
