//! One part of a ledger: the meters whose names' fingerprints fall to it.

use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use ratelimit_core::{Claim, Meter, Mode, Refund, State, Timestamp, Verdict};

use super::entry::{Entry, Tellings, counts_alike};
use super::print::Print;
use super::{Known, Usage, merge};
use crate::names::Name;

/// One in so many charges of a known meter tidies up.
const TIDY_EVERY: u32 = 64;

/// A part of a ledger.
#[derive(Default)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    pub(super) tellings: Tellings,
    /// From how many tellings on those are dropped that nobody needs any more.
    crowded: usize,
    charges: u32,
    /// Where the walk goes on.
    cursor: usize,
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

    fn take(&self) -> bool {
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn free(&self, count: usize) {
        self.taken.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Shard {
    #[inline]
    pub(super) fn find(&self, print: Print) -> Option<&Entry> {
        self.table.find(print.hash, |entry| entry.is(print))
    }

    /// Decides a claim on a meter that is known. With it comes whether it is time to tidy up.
    #[inline]
    pub(super) fn claim(
        &mut self,
        print: Print,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict, bool)> {
        let entry = self.table.find_mut(print.hash, |entry| entry.is(print))?;
        let (admitted, verdict) = entry.claim(claim, now, mode, &mut self.tellings);
        self.charges = self.charges.wrapping_add(1);
        Some((admitted, verdict, self.charges.is_multiple_of(TIDY_EVERY)))
    }

    /// The entry of a meter, which is made if there is room for it.
    pub(super) fn entry(
        &mut self,
        print: Print,
        name: impl FnOnce() -> Name,
        meter: &Meter,
        room: &Room,
    ) -> Option<(&mut Entry, &mut Tellings)> {
        if self.find(print).is_none() {
            if !room.take() {
                return None;
            }
            let entry = Entry::new(print, name(), *meter);
            self.table.insert_unique(print.hash, entry, |entry| entry.print().hash);
            // So that a charge of a known meter allocates nothing.
            let length = self.tellings.dirty.len();
            self.tellings.dirty.reserve(self.table.len().saturating_sub(length));
        }
        let entry = self.table.find_mut(print.hash, |entry| entry.is(print))?;
        Some((entry, &mut self.tellings))
    }

    /// The entry of a meter that is known.
    pub(super) fn known(&mut self, print: Print) -> Option<(&mut Entry, &mut Tellings)> {
        let entry = self.table.find_mut(print.hash, |entry| entry.is(print))?;
        Some((entry, &mut self.tellings))
    }

    pub(super) fn refund(&mut self, print: Print, refund: &Refund<'_>, now: Timestamp) {
        if let Some((entry, tellings)) = self.known(print) {
            entry.refund(refund, now, tellings);
        }
        self.drop_late();
    }

    /// Forgets a meter, and what has not been told of it.
    pub(super) fn remove(&mut self, print: Print, room: &Room) {
        if let Ok(entry) = self.table.find_entry(print.hash, |entry| entry.is(print)) {
            entry.remove();
            room.free(1);
        }
        self.tellings.outbox.retain(|(of, _)| *of != print);
    }

    /// Whether something came to be told since this was last asked.
    #[inline]
    pub(super) fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.tellings.is_new)
    }

    /// Takes what has to be told.
    pub(super) fn take(&mut self, all: &mut Vec<Usage>) {
        all.extend(self.tellings.outbox.drain(..).map(|(_, usage)| usage));
        for print in self.tellings.dirty.drain(..) {
            let entry = self.table.find_mut(print.hash, |entry| entry.is(print));
            let taken = entry.and_then(|entry| entry.pending.take().map(|units| entry.usage(units)));
            all.extend(taken.filter(|usage| !usage.units.is_nothing()));
        }
        self.tellings.outbox.shrink_to(64);
    }

    /// Makes pending again what could not be told. It came before what is pending now.
    pub(super) fn put_back(&mut self, print: Print, usage: Usage) {
        let Some((entry, tellings)) = self.known(print) else { return };
        if counts_alike(&entry.meter, &usage.meter) {
            let later = entry.pending.take();
            if later.is_none() {
                tellings.note(print);
            }
            let mut units = usage.units;
            match later {
                Some(later) if !units.then(&later) => {
                    entry.pending = Some(later);
                    tellings.send(print, usage);
                }
                _ => entry.pending = Some(units),
            }
        } else {
            tellings.send(print, usage);
        }
        self.drop_late();
    }

    /// Adds what was charged elsewhere. `false` if it cannot be counted: there is no room, or the meter counts otherwise.
    pub(super) fn merge(&mut self, print: Print, usage: &Usage, room: &Room) -> bool {
        let Some((entry, _)) = self.entry(print, || usage.name.clone(), &usage.meter, room) else {
            return false;
        };
        let is_window = matches!(usage.meter, Meter::Window(_));
        let (owns, alike) = (usage.meter.owns(&entry.state), counts_alike(&entry.meter, &usage.meter));
        if !owns || is_window && !alike {
            return false;
        }
        merge::add(&usage.meter, &mut entry.state, &usage.units);
        entry.keep_until(usage.meter.forget_at(&entry.state));
        true
    }

    /// Raises what is known of a meter to what another node knows, beside which is counted what was not told yet.
    pub(super) fn raise(&mut self, print: Print, other: &Known, room: &Room) -> bool {
        let Some((entry, tellings)) = self.entry(print, || other.name.clone(), &other.meter, room) else {
            return false;
        };
        let is_window = matches!(other.meter, Meter::Window(_));
        let alike = counts_alike(&entry.meter, &other.meter);
        if !other.meter.owns(&other.state) || !other.meter.owns(&entry.state) || is_window && !alike {
            return false;
        }
        let mut state: State = other.state.clone();
        for (_, usage) in tellings.outbox.iter().filter(|(of, _)| *of == print) {
            merge::add(&usage.meter, &mut state, &usage.units);
        }
        if let Some(units) = &entry.pending {
            merge::add(&entry.meter, &mut state, units);
        }
        merge::raise(&other.meter, &mut entry.state, &state);
        entry.keep_until(other.meter.forget_at(&entry.state));
        true
    }

    pub(super) fn states(&self) -> Vec<Known> {
        let known = |entry: &Entry| Known {
            name: entry.cold.name.clone(),
            meter: entry.meter,
            state: entry.state.clone(),
        };
        self.table.iter().map(known).collect()
    }

    /// Looks at up to `most` meters further on the walk, and forgets those that are over. Tells how many it looked at.
    pub(super) fn sweep(&mut self, most: usize, now: Timestamp, room: &Room) -> usize {
        let (mut looks, mut steps) = (0, self.table.num_buckets());
        while looks < most.min(self.table.len()) && steps > 0 {
            steps -= 1;
            if self.cursor >= self.table.num_buckets() {
                self.cursor = 0;
            }
            if let Ok(entry) = self.table.get_bucket_entry(self.cursor) {
                looks += 1;
                if entry.get().is_over(now) {
                    entry.remove();
                    room.free(1);
                }
            }
            self.cursor += 1;
        }
        let length = self.table.len();
        if self.table.capacity() > 64 && self.table.capacity() / 8 > length {
            self.table.shrink_to(length * 2, |entry| entry.print().hash);
        }
        looks
    }

    /// While nobody takes what there is to tell, what has left its window in the meantime is dropped.
    fn drop_late(&mut self) {
        let Tellings { dirty, outbox, .. } = &mut self.tellings;
        if outbox.len() + dirty.len() <= self.crowded.max(1_024) {
            return;
        }
        let table = &self.table;
        let find = |print: &Print| table.find(print.hash, |entry| entry.is(*print));
        outbox.retain(|(print, usage)| find(print).is_some_and(|entry| usage.matters_to(&entry.state)));
        dirty.sort_unstable_by_key(|print| print.hash);
        dirty.dedup();
        dirty.retain(|print| find(print).is_some_and(|entry| entry.pending.is_some()));
        self.crowded = 2 * (outbox.len() + dirty.len());
    }
}
