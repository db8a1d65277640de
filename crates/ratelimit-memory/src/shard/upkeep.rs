//! What a shard does besides deciding one claim: its parts of a slice, refunds, eviction, and the sweep.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::{Refund, Verdict};

use super::Shard;
use crate::due::Due;
use crate::kit::expiry::{forget_second, has_passed, may_count};
use crate::kit::{Demand, Fingerprint, Slot};
use crate::table::{Blocks, STRIDE, SlotIndex};

/// How many meters are compared to find one to evict. If half of the meters are used up, all in the sample are once in
/// 65,536 times.
const SAMPLED: usize = 16;

/// How many of the table's buckets one step of the sweep visits at most. It visits that many only if most of them are
/// empty.
pub(super) const SWEPT: usize = 64;

/// How many meters a shard may hold, and whether to evict.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) most: usize,
    pub(crate) evict: bool,
}

/// What came of making room for new meters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Room {
    /// Whether there is room.
    pub(crate) is_made: bool,
    /// How many of the meters that were removed for it still counted.
    pub(crate) evicted: u64,
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The place of a meter; valid until another is inserted or removed.
    #[inline]
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<SlotIndex> {
        self.table.find(fingerprint)
    }

    /// The slot of a meter.
    pub(crate) fn slot(&self, place: SlotIndex) -> &Slot {
        self.table.slot(place)
    }

    /// The verdict if nothing is charged.
    pub(crate) fn verdict(&self, place: Option<SlotIndex>, demand: Demand<'_>) -> Verdict {
        let verdict = |state: &State| demand.meter.verdict(state, demand.cost, demand.now, None);
        match place {
            Some(place) => self.read(place, verdict),
            None => verdict(&demand.meter.fresh()),
        }
    }

    /// Calls `f` with the state of a meter.
    fn read<R>(&self, place: SlotIndex, f: impl FnOnce(&State) -> R) -> R {
        self.large.read(self.table.slot(place), f)
    }

    /// Records what a charge has made of a meter's slot.
    pub(crate) fn charge_slot(&mut self, place: SlotIndex, after: Slot) {
        *self.table.slot_mut(place) = after;
        self.record_charge(place);
    }

    pub(crate) fn refund(&mut self, fingerprint: Fingerprint, refund: &Refund<'_>, now: Timestamp) {
        let Some(place) = self.find(fingerprint) else { return };
        let slot = self.table.slot_mut(place);
        let forget_at = self.large.update(slot, |state| {
            if refund.cost == 0 || !refund.meter.owns(state) {
                return None;
            }
            refund.meter.refund(state, refund.cost, refund.receipt, now);
            Some(refund.meter.forget_at(state))
        });
        if let Some(forget_at) = forget_at {
            // The units that a log still has may count for longer under another lease.
            slot.state.record_units(slot.state.units().saturating_sub(refund.cost));
            let is_kept = matches!(refund.meter, Meter::Log(_)) && forget_at > Timestamp::EPOCH;
            let earliest = if is_kept { slot.forget_at } else { 0 };
            slot.forget_at = forget_second(forget_at).max(earliest);
            self.must_publish = true;
            self.due.include(slot.forget_at);
            self.withdraw_refusal(place);
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
    ) -> Room {
        let mut room = Room { is_made: true, evicted: 0 };
        if self.len().saturating_add(wanted) <= bound.most {
            return room;
        }
        // Without room for all of them no other meter is removed.
        let known = spared.iter().filter(|fingerprint| self.find(**fingerprint).is_some()).count();
        if wanted.saturating_add(known) > bound.most {
            return Room::default();
        }
        while self.len().saturating_add(wanted) > bound.most {
            let Some(place) = self.victim(bound.evict, now, spared) else {
                return Room { is_made: false, ..room };
            };
            let slot = self.table.slot(place);
            room.evicted += u64::from(slot.state.units() > 0 && may_count(slot.forget_at, now));
            self.remove(place);
        }
        room
    }

    /// Continues the sweep: visits up to `most` meters, removes those that have expired, and returns how many it has
    /// visited. Where many places are free, it stops earlier and continues at the next call.
    pub(crate) fn sweep(&mut self, most: usize, now: Timestamp) -> usize {
        let wanted = most.min(self.len());
        self.must_publish = true;
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
    fn victim(&mut self, evict: bool, now: Timestamp, spared: &[Fingerprint]) -> Option<SlotIndex> {
        let (end, looks) = (self.table.end(), SAMPLED + spared.len());
        let start = self.searched % end.max(1);
        let taken = (start..end).chain(0..start).filter(|place| self.table.is_taken(*place)).take(looks);
        let (mut lightest, mut last) = (None::<((bool, u64), SlotIndex)>, start);
        for place in taken {
            last = place;
            if spared.iter().any(|fingerprint| self.table.slot(place).is(*fingerprint)) {
                continue;
            }
            let slot = self.table.slot(place);
            if has_passed(slot.forget_at, now) {
                lightest = Some(((false, 0), place));
                break;
            }
            let weight = weight(slot, now);
            if lightest.is_none_or(|(least, _)| weight < least) {
                lightest = Some((weight, place));
            }
        }
        self.searched = last + 1;
        lightest
            .map(|(_, place)| place)
            .filter(|place| evict || has_passed(self.table.slot(*place).forget_at, now))
    }

    fn remove(&mut self, place: SlotIndex) {
        self.must_publish = true;
        self.withdraw_refusal(place);
        let slot = self.table.remove(place);
        self.large.remove(&slot);
    }

    /// Frees the memory that the current meters do not need. Returns most of it, for the caller to drop after it has
    /// released the lock.
    pub(crate) fn shrink_to_fit(&mut self) -> Blocks {
        self.large.shrink_to_fit();
        self.due.moved();
        self.table.shrink_to_fit()
    }
}

/// How much is lost by evicting a meter: more if it is used up than otherwise. Among equals, by the used share of its
/// limit, squared, times the seconds until it expires. Squared, so that the only unit of a new key does not weigh more
/// under a long limit than many units under a short one.
fn weight(slot: &Slot, now: Timestamp) -> (bool, u64) {
    let used = slot.used();
    let seconds = u64::from(slot.forget_at).saturating_sub(now.as_nanos() / 1_000_000_000);
    let used_up = used == Slot::ALL;
    // So that of two meters with hardly any units the one that expires first goes first.
    let used = used.max(1);
    (used_up, used * used * seconds)
}
