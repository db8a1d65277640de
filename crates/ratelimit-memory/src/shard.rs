//! One part of a store: the meters whose names' fingerprints fall to it.

use ratelimit_core::{Claim, Mode, Refund, State, Timestamp, Verdict};

use crate::fingerprint::Fingerprint;
use crate::slot::{Content, NEVER, Slot, forget_second, has_passed};
use crate::table::{Blocks, Place, STRIDE, Table};

/// How many meters are looked at for the one that makes room.
const SAMPLED: usize = 16;

/// How many buckets of the table are passed in one go, most of them empty if it takes so many for a few meters.
const SWEPT: usize = 64;

/// A part of a store.
///
/// In this order: each charge writes the first field, and as a rule no other. It lies on the cache line of the lock, which
/// has to go from core to core anyway; the others can stay with all of them.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Shard {
    /// How many charges there have been; wraps around.
    charges: u32,
    due: Due,
    table: Table,
    shown: Shown,
    /// States that are too large for a slot: logs, and windows of many segments.
    large: Vec<Option<State>>,
    /// Which of those are free.
    free: Vec<usize>,
    /// Where the walk goes on.
    cursor: Place,
    /// Where the next search for a victim begins.
    searched: Place,
}

/// From which second on there may be something to forget, so that the walk passes what has nothing.
#[derive(Clone, Copy)]
struct Due {
    /// No meter may be forgotten before.
    second: u32,
    /// None of those may that this round of the walk has passed, nor any that came since it began.
    passed: u32,
}

impl Default for Due {
    fn default() -> Self {
        Self { second: NEVER, passed: NEVER }
    }
}

impl Due {
    /// There is a meter that may be forgotten from this second on.
    fn include(&mut self, second: u32) {
        self.second = self.second.min(second);
        self.pass(second);
    }

    /// The walk has passed such a one.
    fn pass(&mut self, second: u32) {
        self.passed = self.passed.min(second);
    }

    /// The walk has passed all.
    fn end_round(&mut self) {
        *self = Self { second: self.passed, passed: NEVER };
    }

    /// Meters have changed their places, and the walk may not come to all in this round.
    fn moved(&mut self) {
        self.pass(self.second);
    }
}

/// Which meter is shown beside the lock as one that refuses.
#[derive(Clone, Copy, Default)]
struct Shown {
    slot: Option<Slot>,
    /// Whether that has changed since the lock was taken.
    is_news: bool,
    /// Which has refused last.
    last: u64,
}

impl Shown {
    /// A meter's state is another one: it is shown no more.
    #[inline]
    fn changed(&mut self, slot: &Slot) {
        if let Some(shown) = self.slot
            && shown.is_same(slot)
        {
            *self = Self { slot: None, is_news: true, ..*self };
        }
    }

    /// A meter has refused. If it is the same as the last time, it is shown: where several take turns, it would not pay.
    #[inline]
    fn refused(&mut self, slot: &Slot) {
        let last = std::mem::replace(&mut self.last, slot.low());
        if last == slot.low() && self.slot.is_none_or(|shown| !shown.is_same(slot)) {
            *self = Self { slot: Some(*slot), is_news: true, ..*self };
        }
    }
}

/// How much a shard may hold, and what gives way.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) most: usize,
    pub(crate) evict: bool,
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The place of a meter; good until another is put in or removed.
    #[inline]
    pub(crate) fn find(&self, print: Fingerprint) -> Option<Place> {
        self.table.find(print)
    }

    /// Whether a claim fits.
    pub(crate) fn fits(&self, place: Option<Place>, claim: &Claim<'_>, now: Timestamp) -> bool {
        let Some(place) = place else {
            return claim.cost <= claim.meter.limit();
        };
        match self.table.slot(place).content() {
            Content::Here(state) => claim.meter.fits(&state, claim.cost, now),
            Content::Elsewhere(number) => claim.meter.fits(self.large_state(number), claim.cost, now),
        }
    }

    /// The verdict where nothing is charged.
    pub(crate) fn look(&self, place: Option<Place>, claim: &Claim<'_>, now: Timestamp) -> Verdict {
        let Some(place) = place else {
            return claim.meter.verdict(&claim.meter.fresh(), claim.cost, now, None);
        };
        match self.table.slot(place).content() {
            Content::Here(state) => claim.meter.verdict(&state, claim.cost, now, None),
            Content::Elsewhere(number) => {
                claim.meter.verdict(self.large_state(number), claim.cost, now, None)
            }
        }
    }

    /// Decides a claim on a meter, and charges it if it is admitted and the mode says so.
    pub(crate) fn claim(
        &mut self,
        place: Place,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        self.claim_here(place, claim, now, mode).unwrap_or_else(|| self.claim_other(place, claim, now, mode))
    }

    /// The same, unless the state is elsewhere, or of another kind or shape than the claim's.
    #[inline(always)]
    pub(crate) fn claim_here(
        &mut self,
        place: Place,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> Option<(bool, Verdict)> {
        let slot = self.table.slot_mut(place);
        let (admitted, verdict) = slot.claim(claim, now, mode)?;
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            self.charges = self.charges.wrapping_add(1);
            slot.charged_until(verdict.reset_at);
            self.shown.changed(slot);
        } else if !admitted {
            self.shown.refused(slot);
        }
        Some((admitted, verdict))
    }

    /// Whether there is another meter to be shown than when this was last told.
    #[inline]
    pub(crate) fn has_refusal_news(&self) -> bool {
        self.shown.is_news
    }

    /// What is to be shown from now on, if that has changed: a meter that refuses, or none.
    pub(crate) fn refusal_news(&mut self) -> Option<Option<Slot>> {
        std::mem::take(&mut self.shown.is_news).then_some(self.shown.slot)
    }

    /// Decides a claim on a meter whose state is elsewhere, or of another kind or shape than the claim's.
    pub(crate) fn claim_other(
        &mut self,
        place: Place,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        let slot = self.table.slot_mut(place);
        let is_charge = |admitted| admitted && claim.cost > 0 && mode != Mode::Peek;
        let (admitted, verdict) = match slot.content() {
            Content::Here(mut state) => {
                let decided = claim.meter.claim(&mut state, claim.cost, now, mode);
                if is_charge(decided.0) && !slot.keep(&state) {
                    self.keep_large(place, state);
                }
                decided
            }
            Content::Elsewhere(number) => {
                claim.meter.claim(self.large_state_mut(number), claim.cost, now, mode)
            }
        };
        if is_charge(admitted) {
            self.charges = self.charges.wrapping_add(1);
            let slot = self.table.slot_mut(place);
            slot.charged_until(verdict.reset_at);
            self.shown.changed(slot);
        }
        (admitted, verdict)
    }

    /// Whether the last charge was one of every `interval`.
    #[inline]
    pub(crate) fn is_time(&self, interval: u32) -> bool {
        self.charges.is_multiple_of(interval)
    }

    /// Decides a claim on a meter of which there is none yet, and for which there is room.
    ///
    /// It is decided before it is put in: to read again what was just written to memory that is not near takes as long as to
    /// wait for that memory.
    #[inline(always)]
    pub(crate) fn claim_new(
        &mut self,
        print: Fingerprint,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        let mut fresh = claim.meter.fresh();
        let mut slot = Slot::new(print);
        let (is_here, (admitted, verdict)) = match slot.keep(&fresh).then(|| slot.claim(claim, now, mode)) {
            Some(Some(decided)) => (true, decided),
            _ => (false, claim.meter.claim(&mut fresh, claim.cost, now, mode)),
        };
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            self.charges = self.charges.wrapping_add(1);
            slot.charged_until(verdict.reset_at);
        }
        self.due.include(slot.forget_at);
        if self.table.is_full() {
            self.due.moved();
        }
        let place = self.table.insert(print, slot);
        if !is_here {
            self.keep_large(place, fresh);
        }
        (admitted, verdict)
    }

    /// From which second on there may be something to forget.
    #[inline]
    pub(crate) fn due(&self) -> u32 {
        self.due.second
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
            self.due.include(slot.forget_at);
            self.shown.changed(slot);
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
        self.shown.changed(self.table.slot(place));
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
mod tests {
    use std::collections::HashMap;

    use ratelimit_core::{Limit, MeterId};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    /// A shard that is told the fingerprints, so that they can collide.
    struct Driver {
        shard: Shard,
        limit: Limit,
    }

    impl Driver {
        fn new() -> Self {
            Self { shard: Shard::default(), limit: "100/s burst 100".parse().unwrap() }
        }

        /// All of them have one home, one tag, and one of four low halves.
        fn print(key: u16) -> Fingerprint {
            Fingerprint { low: u64::from(key % 4), high: u32::from(key / 4), rest: 0 }
        }

        fn charge(&mut self, key: u16) -> u64 {
            let id = MeterId { namespace: "n", scope: self.limit.scope(), key: b"" };
            let claim = Claim { id, cost: 1, meter: self.limit.meter_for(id.key) };
            let print = Self::print(key);
            let decided = match self.shard.find(print) {
                Some(place) => self.shard.claim(place, &claim, NOW, Mode::Charge),
                None => self.shard.claim_new(print, &claim, NOW, Mode::Charge),
            };
            decided.1.remaining
        }

        fn reset(&mut self, key: u16) {
            self.shard.reset(Self::print(key));
        }
    }

    #[test]
    fn meters_stay_themselves_while_others_come_and_go() {
        let (mut driver, mut model) = (Driver::new(), HashMap::new());
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = u16::try_from(random >> 33 & 0x1ff).unwrap();
            if random >> 60 < 8 {
                let left = model.entry(key).or_insert(100_u64);
                *left = left.saturating_sub(1);
                assert_eq!(driver.charge(key), *left);
            } else {
                model.remove(&key);
                driver.reset(key);
            }
            assert_eq!(driver.shard.len(), model.len());
        }
    }

    #[test]
    fn memory_is_given_back_after_a_burst_when_it_is_asked_for() {
        let mut driver = Driver::new();
        (0..10_000).for_each(|key| _ = driver.charge(key));
        driver.shard.shrink_to_fit();
        let full = driver.shard.table.end();
        assert!(driver.shard.shrink_to_fit().is_empty());
        let later = Timestamp::from_secs(2_000);
        let mut looks = 0;
        while driver.shard.len() > 0 {
            looks += driver.shard.sweep(8, later);
        }
        assert_eq!((looks, driver.shard.table.end()), (10_000, full));
        driver.charge(3);
        driver.charge(3);
        assert!(!driver.shard.shrink_to_fit().is_empty());
        assert!(driver.shard.table.end() <= 64);
        assert_eq!(driver.charge(3), 97);
    }

    #[test]
    fn nothing_is_due_before_the_shard_says_so_and_the_walk_finds_out_when_it_is() {
        let mut random = 1_u64;
        for most in [20, 300, 3_000] {
            let (mut driver, mut now) = (Driver::new(), NOW);
            for step in 0..20_000 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = random >> 33;
                // Most homes are one of a few, so that many go round the end of the table.
                let print = Fingerprint { low: number % most, high: u32::MAX - (number % 3) as u32, rest: 0 };
                let text = ["1000/s burst 100", "1000/10s", "1000/min fixed", "1000/min precision 10s"]
                    [number as usize % 4];
                let limit: Limit = text.parse().unwrap();
                let id = MeterId { namespace: "n", scope: limit.scope(), key: b"" };
                let (meter, shard) = (limit.meter_for(id.key), &mut driver.shard);
                let claim = Claim { id, cost: 1 + number / 16 % 50, meter };
                match (random >> 20) % 16 {
                    0 => shard.reset(print),
                    1 => shard.refund(print, &Refund { id, cost: claim.cost, meter, receipt: now }, now),
                    2 => now = now + std::time::Duration::from_millis(number % 3_000),
                    3..8 => _ = shard.sweep(8, now),
                    8 if step % 64 == 0 => _ = shard.shrink_to_fit(),
                    _ => {
                        _ = match shard.find(print) {
                            Some(place) => shard.claim(place, &claim, now, Mode::Charge),
                            None => shard.claim_new(print, &claim, now, Mode::Charge),
                        }
                    }
                }
                assert!(shard.due() <= earliest(shard), "{most}, step {step}");
            }
            let rounds = |shard: &mut Shard, now| (0..most).for_each(|_| _ = shard.sweep(8, now));
            rounds(&mut driver.shard, now);
            assert_eq!(driver.shard.due(), earliest(&driver.shard), "{most}");
            rounds(&mut driver.shard, now + std::time::Duration::from_secs(1_000));
            assert_eq!((driver.shard.len(), driver.shard.due()), (0, NEVER), "{most}");
        }
    }

    /// When the first of its meters may be forgotten.
    fn earliest(shard: &Shard) -> u32 {
        let taken = (0..shard.table.end()).filter(|place| shard.table.is_taken(*place));
        taken.map(|place| shard.table.slot(place).forget_at).min().unwrap_or(NEVER)
    }

    #[test]
    fn a_sweep_passes_few_of_many_free_places_and_comes_to_all() {
        let mut driver = Driver::new();
        (0..10_000).for_each(|key| _ = driver.charge(key));
        let later = Timestamp::from_secs(2_000);
        while driver.shard.len() > 0 {
            driver.shard.sweep(8, later);
        }
        // One that has just been looked at.
        driver.charge(3);
        while driver.shard.sweep(8, NOW) == 0 {}
        let buckets = driver.shard.table.end() / STRIDE;
        let rounds = (0..).take_while(|_| driver.shard.sweep(8, later) == 0).count();
        assert_eq!((rounds, driver.shard.len()), ((buckets - 1) / SWEPT, 0));
    }

    #[test]
    fn a_sweep_looks_at_no_more_than_it_is_told_and_at_all_in_turn() {
        let mut driver = Driver::new();
        (0..100).for_each(|key| _ = driver.charge(key));
        let later = Timestamp::from_secs(2_000);
        assert_eq!(driver.shard.sweep(8, NOW), 8);
        assert_eq!((driver.shard.sweep(8, later), driver.shard.len()), (8, 92));
        assert_eq!((driver.shard.sweep(1_000, later), driver.shard.len()), (92, 0));
        assert_eq!(driver.shard.sweep(8, later), 0);
    }
}
