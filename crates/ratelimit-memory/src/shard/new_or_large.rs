//! Claims on a meter that is new, or whose state is not in its slot.

use ratelimit_core::meter::State;
use ratelimit_core::store::Verdict;

use super::Shard;
use crate::kit::{Demand, Fingerprint, Slot, SlotMeter};
use crate::table::SlotIndex;

impl Shard {
    /// Decides a claim on a meter whose state is elsewhere, or is of another kind or shape than the claim's.
    pub(crate) fn claim_elsewhere(&mut self, place: SlotIndex, demand: Demand<'_>) -> (bool, Verdict) {
        let slot = self.table.slot_mut(place);
        let decide = |state: &mut State| demand.meter.claim(state, demand.cost, demand.now, demand.mode);
        let decided = self.large.update(slot, decide);
        let (admitted, verdict) = slot.record(decided, demand);
        slot.set_limit(verdict.limit);
        slot.state.record_units(units(&verdict));
        if admitted && demand.charges() {
            self.record_charge(place);
        }
        (admitted, verdict)
    }

    /// Charges a new meter, whose claim fits. There must be room for it.
    pub(crate) fn charge_new(&mut self, fingerprint: Fingerprint, demand: Demand<'_>) -> (bool, Verdict) {
        let Demand { cost, meter, now, mode } = demand;
        let mut slot;
        let decided = match Slot::fresh(fingerprint, meter, now) {
            Some((fresh, SlotMeter::Window(window))) => {
                slot = fresh;
                slot.claim_window(window, demand)
            }
            Some((fresh, SlotMeter::Bucket(bucket))) => {
                slot = fresh;
                slot.claim_bucket(bucket, demand)
            }
            None => {
                let mut state = meter.fresh();
                let decided = meter.claim(&mut state, cost, now, mode);
                slot = self.large.insert(fingerprint, state);
                slot.state.record_units(units(&decided.1));
                slot.record(decided, demand)
            }
        };
        self.insert(fingerprint, slot);
        decided
    }

    /// Inserts a new meter that has been charged.
    #[inline(always)]
    fn insert(&mut self, fingerprint: Fingerprint, slot: Slot) {
        self.charges = self.charges.wrapping_add(1);
        self.must_publish = true;
        self.due.include(slot.forget_at);
        if self.table.is_full() {
            self.due.moved();
        }
        self.table.insert(fingerprint, slot);
    }
}

/// The units of its meter that count, as a verdict shows them.
fn units(verdict: &Verdict) -> u64 {
    verdict.limit.saturating_sub(verdict.remaining)
}
