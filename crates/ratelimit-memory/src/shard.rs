//! One part of a store: the meters whose names' fingerprints fall to it.

use ratelimit_core::{Meter, Refund, State, Timestamp, Verdict};

use crate::ask::Ask;
use crate::due::Due;
use crate::fingerprint::Fingerprint;
use crate::slot::{Content, Slot, Way, forget_second, has_passed};
use crate::table::{Blocks, Place, STRIDE, Table};

/// How many meters are looked at for the one that makes room.
const SAMPLED: usize = 16;

/// How many buckets of the table are passed in one go, most of them empty if it takes so many for a few meters.
const SWEPT: usize = 64;

/// A part of a store.
///
/// In this order: a claim on a known meter needs no more than the fields up to where the table's blocks are, which share the
/// lock's cache line.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Shard {
    /// How many charges there have been; wraps around.
    charges: u32,
    /// Whether something may have changed since the lock was taken of what others are told.
    is_news: bool,
    /// Whether a meter is shown beside the lock.
    shows: bool,
    table: Table,
    due: Due,
    shown: Shown,
    /// States that are too large for a slot: logs, windows of many segments, and buckets of several rates.
    large: Vec<Option<State>>,
    /// Which of those are free.
    free: Vec<usize>,
    /// Where the walk goes on.
    cursor: Place,
    /// Where the next search for a victim begins.
    searched: Place,
    /// Which of the store's shards it is.
    number: usize,
}

/// With the lock before it, eight bytes, and the table's two vectors, 48, that is one cache line.
const _: () = assert!(std::mem::offset_of!(Shard, table) == 8);

/// Which meter is shown beside the lock as one that refuses.
#[derive(Clone, Copy, Default)]
struct Shown {
    slot: Slot,
    /// Whether that has changed since the lock was taken.
    is_news: bool,
    /// Which has refused last.
    last: u64,
}

/// How much a shard may hold, and what gives way.
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

    /// The place of a meter; good until another is put in or removed.
    #[inline]
    pub(crate) fn find(&self, print: Fingerprint) -> Option<Place> {
        self.table.find(print)
    }

    /// Whether a claim fits.
    pub(crate) fn fits(&self, place: Option<Place>, ask: Ask<'_>) -> bool {
        let Some(place) = place else { return ask.fits_fresh() };
        match self.table.slot(place).content() {
            Content::Here(state) => ask.meter.fits(&state, ask.cost, ask.now),
            Content::Elsewhere(number) => ask.meter.fits(self.large_state(number), ask.cost, ask.now),
        }
    }

    /// The verdict where nothing is charged.
    pub(crate) fn look(&self, place: Option<Place>, ask: Ask<'_>) -> Verdict {
        let verdict = |state: &State| ask.meter.verdict(state, ask.cost, ask.now, None);
        match place.map(|place| self.table.slot(place).content()) {
            None => verdict(&ask.meter.fresh()),
            Some(Content::Here(state)) => verdict(&state),
            Some(Content::Elsewhere(number)) => verdict(self.large_state(number)),
        }
    }

    /// Decides a claim on a meter, and charges it if it is admitted and the mode says so.
    pub(crate) fn claim(&mut self, place: Place, ask: Ask<'_>) -> (bool, Verdict) {
        let Some((admitted, verdict)) = self.table.slot_mut(place).claim(ask) else {
            return self.claim_other(place, ask);
        };
        self.has_decided(place, admitted, ask);
        (admitted, verdict)
    }

    /// A meter whose claim is decided in its slot, and how; or the place of one whose state is elsewhere or of another kind or
    /// shape than the claim's, if there is one at all.
    #[inline(always)]
    pub(crate) fn find_here<'m>(
        &mut self,
        print: Fingerprint,
        meter: &'m Meter,
    ) -> Result<(Place, &mut Slot, Way<'m>), Option<Place>> {
        let Some((place, slot)) = self.table.find_mut(print) else { return Err(None) };
        match slot.way(meter) {
            Some(way) => Ok((place, slot, way)),
            None => Err(Some(place)),
        }
    }

    /// A claim was decided in its meter's slot.
    #[inline(always)]
    pub(crate) fn has_decided(&mut self, place: Place, admitted: bool, ask: Ask<'_>) {
        if !admitted {
            self.has_refused(place);
        } else if ask.charges() {
            self.has_charged(place);
        }
    }

    /// A meter was charged.
    #[inline]
    fn has_charged(&mut self, place: Place) {
        self.charges = self.charges.wrapping_add(1);
        self.has_changed(place);
    }

    /// A meter's state is another one: it is shown no more.
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

    /// A meter has refused. If it is the same as the last time, it is shown: where several take turns, it would not pay.
    #[inline(never)]
    fn has_refused(&mut self, place: Place) {
        let slot = *self.table.slot(place);
        let last = std::mem::replace(&mut self.shown.last, slot.low());
        if last == slot.low() && !(self.shows && self.shown.slot.is_same(&slot)) {
            (self.shows, self.is_news) = (true, true);
            self.shown = Shown { slot, is_news: true, ..self.shown };
        }
    }

    /// Whether something may have changed of what others are told.
    #[inline]
    pub(crate) fn is_news(&self) -> bool {
        self.is_news
    }

    /// Others have been told.
    pub(crate) fn has_told(&mut self) {
        self.is_news = false;
    }

    /// What is to be shown from now on, if that has changed: a meter that refuses, or none.
    pub(crate) fn refusal_news(&mut self) -> Option<Option<Slot>> {
        std::mem::take(&mut self.shown.is_news).then_some(self.shows.then_some(self.shown.slot))
    }

    /// Decides a claim on a meter whose state is elsewhere, or of another kind or shape than the claim's.
    pub(crate) fn claim_other(&mut self, place: Place, ask: Ask<'_>) -> (bool, Verdict) {
        let slot = self.table.slot_mut(place);
        let (admitted, verdict) = match slot.content() {
            Content::Here(mut state) => {
                let decided = ask.meter.claim(&mut state, ask.cost, ask.now, ask.mode);
                if decided.0 && ask.charges() && !slot.keep(&state) {
                    self.keep_large(place, state);
                }
                decided
            }
            Content::Elsewhere(number) => {
                let decided = ask.meter.claim(self.large_state_mut(number), ask.cost, ask.now, ask.mode);
                if matches!(ask.meter, Meter::Bucket(_)) {
                    self.keep_small(place, number);
                }
                decided
            }
        };
        if admitted && ask.charges() {
            self.table.slot_mut(place).decided((admitted, verdict), ask);
            self.has_charged(place);
        }
        (admitted, verdict)
    }

    /// Whether the last charge was one of every `interval`.
    #[inline]
    pub(crate) fn is_time(&self, interval: u32) -> bool {
        self.charges.is_multiple_of(interval)
    }

    /// Charges a meter of which there is none yet, and for which there is room.
    pub(crate) fn claim_new(&mut self, print: Fingerprint, ask: Ask<'_>) -> (bool, Verdict) {
        let Some((mut slot, way)) = Slot::fresh(print, ask.meter, ask.now) else {
            return self.claim_large(print, ask);
        };
        let decided = match way {
            Way::Window(window) => slot.claim_window(window, ask),
            Way::Bucket(bucket) => slot.claim_bucket(bucket, ask),
        };
        self.put(print, slot);
        decided
    }

    /// The same of a meter whose state is too large for a slot.
    pub(crate) fn claim_large(&mut self, print: Fingerprint, ask: Ask<'_>) -> (bool, Verdict) {
        let (mut slot, mut state) = (Slot::new(print), ask.meter.fresh());
        let decided = slot.decided(ask.meter.claim(&mut state, ask.cost, ask.now, ask.mode), ask);
        let place = self.put(print, slot);
        self.keep_large(place, state);
        decided
    }

    /// Puts in a meter that was charged, of which there is none yet.
    #[inline(always)]
    pub(crate) fn put(&mut self, print: Fingerprint, slot: Slot) -> Place {
        self.charges = self.charges.wrapping_add(1);
        self.is_news = true;
        self.due.include(slot.forget_at);
        if self.table.is_full() {
            self.due.moved();
        }
        self.table.insert(print, slot)
    }

    /// From which second on there may be something to forget.
    #[inline]
    pub(crate) fn due(&self) -> u32 {
        self.due.second()
    }

    pub(crate) fn refund(&mut self, print: Fingerprint, refund: &Refund<'_>, now: Timestamp) {
        let Some(place) = self.find(print) else { return };
        let mut state = match self.table.slot(place).content() {
            Content::Here(state) => state,
            Content::Elsewhere(number) => self.large_state(number).clone(),
        };
        if refund.cost > 0 && refund.meter.owns(&state) {
            refund.meter.refund(&mut state, refund.cost, refund.receipt, now);
            let forget_at = refund.meter.forget_at(&state);
            let slot = self.table.slot_mut(place);
            match slot.content() {
                Content::Elsewhere(number) => *self.large_state_mut(number) = state,
                Content::Here(_) => _ = slot.keep(&state),
            }
            let slot = self.table.slot_mut(place);
            slot.forget_at = forget_second(forget_at);
            self.is_news = true;
            self.due.include(slot.forget_at);
            self.has_changed(place);
        }
    }

    pub(crate) fn reset(&mut self, print: Fingerprint) {
        if let Some(place) = self.find(print) {
            self.remove(place);
        }
    }

    /// Makes room for `wanted` new meters if it can, never at the cost of those that are `spared`.
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

    /// Goes on with a walk over the places until it has looked at up to `most` meters, forgets those that have expired, and tells
    /// how many it looked at. Among many free places it goes on the next time.
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

    /// The first of a few that has expired, or else the one whose loss weighs least.
    ///
    /// They are neighbours, which in a table by fingerprint is as good as any choice, and others each time.
    fn victim(&mut self, evict: bool, now: Timestamp, spared: &[Fingerprint]) -> Option<Place> {
        let (end, looks) = (self.table.end(), SAMPLED + spared.len());
        let start = self.searched % end.max(1);
        let taken = (start..end).chain(0..start).filter(|place| self.table.is_taken(*place)).take(looks);
        let (mut lightest, mut last): (Option<Place>, Place) = (None, start);
        for place in taken {
            last = place;
            if spared.iter().any(|print| self.table.slot(place).is(*print)) {
                continue;
            }
            if has_passed(self.table.slot(place).forget_at, now) {
                lightest = Some(place);
                break;
            }
            if lightest.is_none_or(|other| self.weight(place) < self.weight(other)) {
                lightest = Some(place);
            }
        }
        self.searched = last + 1;
        lightest.filter(|place| evict || has_passed(self.table.slot(*place).forget_at, now))
    }

    /// How much is lost by forgetting a meter: when it would be forgotten, and of equals how much was charged lately.
    fn weight(&self, place: Place) -> (u32, u64) {
        (self.table.slot(place).forget_at, self.table.slot(place).charged())
    }

    fn remove(&mut self, place: Place) {
        self.is_news = true;
        self.has_changed(place);
        if let Content::Elsewhere(number) = self.table.remove(place).content() {
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

    /// A bucket whose limit was changed goes back into its slot when it has become small enough.
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

    /// Gives what is not needed for the meters that there are, to be dropped when the lock has been let go.
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

#[cfg(test)]
mod tests;
