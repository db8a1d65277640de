//! A shard of a store: the meters whose fingerprints belong to it.

use ratelimit_core::{Meter, Refund, State, Timestamp, Verdict};

use crate::demand::Demand;
use crate::due::Due;
use crate::kit::expiry::{forget_second, has_passed};
use crate::kit::{Fingerprint, InPlace};
use crate::slot::Slot;
use crate::table::{Blocks, Place, STRIDE, Table};

/// How many meters are compared to find one to evict.
const SAMPLED: usize = 16;

/// How many of the table's buckets one step of the sweep visits at most. It visits that many only if most of them are
/// empty.
const SWEPT: usize = 64;

/// A shard of a store.
///
/// The order of the fields matters: a claim on a known meter needs only those up to the table's blocks, which share the
/// lock's cache line.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Shard {
    /// The number of charges; wraps around.
    charges: u32,
    /// Whether values that are published without the lock may have changed since the lock was taken.
    is_news: bool,
    /// Whether a refusal is published.
    shows: bool,
    table: Table,
    due: Due,
    shown: Shown,
    /// States that are too large for a slot: logs, windows of many segments, and buckets of several rates.
    large: Vec<Option<State>>,
    /// The free places in `large`.
    free: Vec<usize>,
    /// Where the sweep continues.
    cursor: Place,
    /// Where the next search for a victim begins.
    searched: Place,
    /// The shard's number in the store.
    number: usize,
}

/// Together with the lock before it, eight bytes, and the table's two vectors, 48 bytes, this fills one cache line.
const _: () = assert!(std::mem::offset_of!(Shard, table) == 8);

/// The refusal that is published.
#[derive(Clone, Copy, Default)]
struct Shown {
    slot: Slot,
    /// Whether it has changed since the lock was taken.
    is_news: bool,
    /// The meter of the last refusal.
    last: u64,
}

/// How many meters a shard may hold, and whether to evict.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) most: usize,
    pub(crate) evict: bool,
}

impl Shard {
    pub(crate) fn new(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The place of a meter; valid until another is inserted or removed.
    #[inline]
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<Place> {
        self.table.find(fingerprint)
    }

    /// Whether a claim fits the meter at `place`; `None` for a new meter.
    pub(crate) fn fits(&self, place: Option<Place>, demand: Demand<'_>) -> bool {
        let Some(place) = place else { return demand.fits_fresh() };
        match self.table.slot(place).state().state() {
            Ok(state) => demand.meter.fits(&state, demand.cost, demand.now),
            Err(number) => demand.meter.fits(self.large_state(number), demand.cost, demand.now),
        }
    }

    /// The verdict if nothing is charged.
    pub(crate) fn look(&self, place: Option<Place>, demand: Demand<'_>) -> Verdict {
        let verdict = |state: &State| demand.meter.verdict(state, demand.cost, demand.now, None);
        match place.map(|place| self.table.slot(place).state().state()) {
            None => verdict(&demand.meter.fresh()),
            Some(Ok(state)) => verdict(&state),
            Some(Err(number)) => verdict(self.large_state(number)),
        }
    }

    /// Decides a claim on a meter, and charges it if it is admitted and is not a peek.
    pub(crate) fn claim(&mut self, place: Place, demand: Demand<'_>) -> (bool, Verdict) {
        let Some((admitted, verdict)) = self.table.slot_mut(place).claim(demand) else {
            return self.claim_other(place, demand);
        };
        self.has_decided(place, admitted, demand);
        (admitted, verdict)
    }

    /// Finds a meter whose claim can be decided in its slot, and how. Otherwise returns the place of the meter, if
    /// there is one; its state is stored elsewhere, or is of another kind or shape than the claim's.
    #[inline(always)]
    pub(crate) fn find_here<'m>(
        &mut self,
        fingerprint: Fingerprint,
        meter: &'m Meter,
    ) -> Result<(Place, &mut Slot, InPlace<'m>), Option<Place>> {
        let Some((place, slot)) = self.table.find_mut(fingerprint) else { return Err(None) };
        match slot.in_place(meter) {
            Some(way) => Ok((place, slot, way)),
            None => Err(Some(place)),
        }
    }

    /// Updates the shard after a claim was decided in its meter's slot.
    #[inline(always)]
    pub(crate) fn has_decided(&mut self, place: Place, admitted: bool, demand: Demand<'_>) {
        if !admitted {
            self.has_refused(place);
        } else if demand.charges() {
            self.has_charged(place);
        }
    }

    /// Updates the shard after a charge.
    #[inline]
    fn has_charged(&mut self, place: Place) {
        self.charges = self.charges.wrapping_add(1);
        self.has_changed(place);
    }

    /// Records that a meter's state has changed: stops publishing its refusal.
    #[inline]
    fn has_changed(&mut self, place: Place) {
        if self.shows {
            self.show_no_more(place);
        }
    }

    #[inline(never)]
    fn show_no_more(&mut self, place: Place) {
        if self.shown.slot.is_same(self.table.slot(place)) {
            (self.shows, self.is_news, self.shown.is_news) = (false, true, true);
        }
    }

    /// Records that a meter has refused. Publishes the refusal if the same meter also was the last one to refuse: if
    /// several meters alternate, publishing would not pay.
    #[inline(never)]
    fn has_refused(&mut self, place: Place) {
        let slot = *self.table.slot(place);
        let last = std::mem::replace(&mut self.shown.last, slot.low());
        if last == slot.low() && !(self.shows && self.shown.slot.is_same(&slot)) {
            (self.shows, self.is_news) = (true, true);
            self.shown = Shown { slot, is_news: true, ..self.shown };
        }
    }

    /// Whether published values may have changed.
    #[inline]
    pub(crate) fn is_news(&self) -> bool {
        self.is_news
    }

    /// Records that the changes have been published.
    pub(crate) fn has_told(&mut self) {
        self.is_news = false;
    }

    /// Returns what to publish, if that has changed: a meter that refuses, or none.
    pub(crate) fn refusal_news(&mut self) -> Option<Option<Slot>> {
        std::mem::take(&mut self.shown.is_news).then_some(self.shows.then_some(self.shown.slot))
    }

    /// Decides a claim on a meter whose state is stored elsewhere, or is of another kind or shape than the claim's.
    pub(crate) fn claim_other(&mut self, place: Place, demand: Demand<'_>) -> (bool, Verdict) {
        let slot = self.table.slot_mut(place);
        let (admitted, verdict) = match slot.state().state() {
            Ok(mut state) => {
                let decided = demand.meter.claim(&mut state, demand.cost, demand.now, demand.mode);
                if decided.0 && demand.charges() && !slot.keep(&state) {
                    self.keep_large(place, state);
                }
                decided
            }
            Err(number) => {
                let decided =
                    demand.meter.claim(self.large_state_mut(number), demand.cost, demand.now, demand.mode);
                if matches!(demand.meter, Meter::Bucket(_)) {
                    self.keep_small(place, number);
                }
                decided
            }
        };
        if admitted && demand.charges() {
            self.table.slot_mut(place).decided((admitted, verdict), demand);
            self.has_charged(place);
        }
        (admitted, verdict)
    }

    /// Whether the number of charges is a multiple of `interval`.
    #[inline]
    pub(crate) fn is_time(&self, interval: u32) -> bool {
        self.charges.is_multiple_of(interval)
    }

    /// Charges a new meter. There must be room for it.
    pub(crate) fn claim_new(&mut self, fingerprint: Fingerprint, demand: Demand<'_>) -> (bool, Verdict) {
        let Some((mut slot, way)) = Slot::fresh(fingerprint, demand.meter, demand.now) else {
            return self.claim_large(fingerprint, demand);
        };
        let decided = match way {
            InPlace::Window(window) => slot.claim_window(window, demand),
            InPlace::Bucket(bucket) => slot.claim_bucket(bucket, demand),
        };
        self.put(fingerprint, slot);
        decided
    }

    /// The same for a meter whose state is too large for a slot.
    pub(crate) fn claim_large(&mut self, fingerprint: Fingerprint, demand: Demand<'_>) -> (bool, Verdict) {
        let (mut slot, mut state) = (Slot::new(fingerprint), demand.meter.fresh());
        let decided =
            slot.decided(demand.meter.claim(&mut state, demand.cost, demand.now, demand.mode), demand);
        let place = self.put(fingerprint, slot);
        self.keep_large(place, state);
        decided
    }

    /// Inserts a new meter that has been charged.
    #[inline(always)]
    pub(crate) fn put(&mut self, fingerprint: Fingerprint, slot: Slot) -> Place {
        self.charges = self.charges.wrapping_add(1);
        self.is_news = true;
        self.due.include(slot.forget_at);
        if self.table.is_full() {
            self.due.moved();
        }
        self.table.insert(fingerprint, slot)
    }

    /// The second from which on there may be expired meters.
    #[inline]
    pub(crate) fn due(&self) -> u32 {
        self.due.second()
    }

    pub(crate) fn refund(&mut self, fingerprint: Fingerprint, refund: &Refund<'_>, now: Timestamp) {
        let Some(place) = self.find(fingerprint) else { return };
        let mut state = match self.table.slot(place).state().state() {
            Ok(state) => state,
            Err(number) => self.large_state(number).clone(),
        };
        if refund.cost > 0 && refund.meter.owns(&state) {
            refund.meter.refund(&mut state, refund.cost, refund.receipt, now);
            let forget_at = refund.meter.forget_at(&state);
            let slot = self.table.slot_mut(place);
            match slot.state().state() {
                Err(number) => *self.large_state_mut(number) = state,
                Ok(_) => _ = slot.keep(&state),
            }
            let slot = self.table.slot_mut(place);
            slot.forget_at = forget_second(forget_at);
            self.is_news = true;
            self.due.include(slot.forget_at);
            self.has_changed(place);
        }
    }

    pub(crate) fn reset(&mut self, fingerprint: Fingerprint) {
        if let Some(place) = self.find(fingerprint) {
            self.remove(place);
        }
    }

    /// Makes room for `wanted` new meters if possible, but never removes those in `spared`.
    pub(crate) fn make_room(
        &mut self,
        wanted: usize,
        bound: Bound,
        now: Timestamp,
        spared: &[Fingerprint],
    ) -> bool {
        while self.len().saturating_add(wanted) > bound.most {
            match self.victim(bound.evict, now, spared) {
                Some(place) => self.remove(place),
                None => return false,
            }
        }
        true
    }

    /// Continues the sweep: visits up to `most` meters, removes those that have expired, and returns how many it has
    /// visited. Where many places are free, it stops earlier and continues at the next call.
    pub(crate) fn sweep(&mut self, most: usize, now: Timestamp) -> usize {
        let wanted = most.min(self.len());
        self.is_news = true;
        if wanted == 0 {
            self.due = Due::default();
        }
        let (mut looks, mut buckets) = (0, SWEPT);
        while looks < wanted && buckets > 0 {
            if self.cursor >= self.table.end() {
                self.cursor = 0;
                self.due.end_round();
            }
            let found = self.table.taken_from(self.cursor, buckets);
            let place = found.unwrap_or_else(|after| after);
            buckets -= place / STRIDE - self.cursor / STRIDE;
            self.cursor = place;
            if found.is_ok() {
                looks += 1;
                self.cursor += 1;
                let forget_at = self.table.slot(place).forget_at;
                if has_passed(forget_at, now) {
                    self.remove(place);
                } else {
                    self.due.pass(forget_at);
                }
            }
        }
        looks
    }

    /// Finds the first expired meter of a small sample, or else the one whose loss matters least.
    ///
    /// The meters of the sample are neighbours, which is as good as random in a table ordered by fingerprint. Each call
    /// takes a different sample.
    fn victim(&mut self, evict: bool, now: Timestamp, spared: &[Fingerprint]) -> Option<Place> {
        let (end, looks) = (self.table.end(), SAMPLED + spared.len());
        let start = self.searched % end.max(1);
        let taken = (start..end).chain(0..start).filter(|place| self.table.is_taken(*place)).take(looks);
        let (mut lightest, mut last) = (None::<((u32, u64), Place)>, start);
        for place in taken {
            last = place;
            if spared.iter().any(|fingerprint| self.table.slot(place).is(*fingerprint)) {
                continue;
            }
            let weight = self.weight(place);
            if has_passed(weight.0, now) {
                lightest = Some((weight, place));
                break;
            }
            if lightest.is_none_or(|(least, _)| weight < least) {
                lightest = Some((weight, place));
            }
        }
        self.searched = last + 1;
        lightest
            .map(|(_, place)| place)
            .filter(|place| evict || has_passed(self.table.slot(*place).forget_at, now))
    }

    /// How much is lost by evicting a meter: compares by its expiry, and among equals by the units that were charged
    /// recently.
    fn weight(&self, place: Place) -> (u32, u64) {
        let slot = self.table.slot(place);
        let units = slot.state().recent_units();
        (slot.forget_at, units.unwrap_or_else(|number| recent_units(self.large_state(number))))
    }

    fn remove(&mut self, place: Place) {
        self.is_news = true;
        self.has_changed(place);
        if let Err(number) = self.table.remove(place).state().state() {
            self.large[number] = None;
            self.free.push(number);
        }
    }

    #[cold]
    fn keep_large(&mut self, place: Place, state: State) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.large.push(None);
            self.large.len() - 1
        });
        self.large[number] = Some(state);
        self.table.slot_mut(place).refer(number);
    }

    /// Moves a bucket whose limit has changed back into its slot when it has become small enough.
    fn keep_small(&mut self, place: Place, number: usize) {
        let state = self.large[number].take().expect("a slot refers to a state that is there");
        if self.table.slot_mut(place).keep(&state) {
            self.free.push(number);
        } else {
            self.large[number] = Some(state);
        }
    }

    fn large_state(&self, number: usize) -> &State {
        self.large[number].as_ref().expect("a slot refers to a state that is there")
    }

    fn large_state_mut(&mut self, number: usize) -> &mut State {
        self.large[number].as_mut().expect("a slot refers to a state that is there")
    }

    /// Frees the memory that the current meters do not need. Returns most of it, for the caller to drop after it has
    /// released the lock.
    pub(crate) fn shrink_to_fit(&mut self) -> Blocks {
        while let Some(None) = self.large.last() {
            self.large.pop();
        }
        self.large.shrink_to_fit();
        self.free.retain(|number| *number < self.large.len());
        self.free.shrink_to_fit();
        self.due.moved();
        self.table.shrink_to_fit()
    }
}

/// The units of a window's newest segment, those that a bucket owed at its newest charge, or all of a log.
fn recent_units(state: &State) -> u64 {
    match state {
        State::Window(state) => state.counts.first().copied().unwrap_or(0),
        State::Bucket(state) => state.owed(state.at),
        State::Log(state) => state.units.len() as u64,
    }
}

#[cfg(test)]
mod tests;
