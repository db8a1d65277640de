//! A view of one meter that combines its slot and its cold part.

use ratelimit_core::{Claim, Meter, Mode, Refund, State, Timestamp, Verdict};

use super::fingerprint::Fingerprint;
use super::reading::Reading;
use super::slab::Cold;
use super::slot::Slot;
use super::units::{Units, counts_alike, counts_together};
use super::usage::Usage;

/// A meter: its state, and its pending units.
pub(super) struct Entry<'s> {
    pub(super) fingerprint: Fingerprint,
    /// Own units, and those received from other nodes.
    pub(super) state: State,
    /// The meter at the time of its last charge.
    pub(super) meter: Meter,
    pub(super) pending: Option<Units>,
    pub(super) cold: &'s mut Cold,
    slot: &'s mut Slot,
}

/// Usages that have to be sent.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Meters with pending units: the numbers of their cold parts.
    pub(super) dirty: Vec<u32>,
    /// Usages that cannot be combined with what is now pending, because their segment or rate is another one.
    pub(super) queue: Vec<(Fingerprint, Usage)>,
}

impl Outgoing {
    #[inline]
    pub(super) fn mark_dirty(&mut self, cold: u32) {
        self.dirty.push(cold);
    }

    #[cold]
    pub(super) fn push(&mut self, fingerprint: Fingerprint, usage: Usage) {
        self.queue.push((fingerprint, usage));
    }

    pub(super) fn len(&self) -> usize {
        self.dirty.len() + self.queue.len()
    }
}

impl<'s> Entry<'s> {
    /// Opens a meter; `meter` is the one of its last charge.
    pub(super) fn open(slot: &'s mut Slot, meter: Meter, cold: &'s mut Cold) -> Self {
        let (fingerprint, state, pending) = (slot.fingerprint(), cold.take_state(slot), slot.pending(&meter));
        Self { fingerprint, state, meter, pending, cold, slot }
    }

    /// Stores the changes; returns the meter of the last charge.
    pub(super) fn close(self) -> Meter {
        self.cold.keep_state(self.slot, self.state);
        self.slot.set_pending(self.pending);
        self.meter
    }

    /// Whether units of this meter can be added to the state.
    pub(super) fn accepts(&self, meter: &Meter) -> bool {
        let is_window = matches!(meter, Meter::Window(_));
        meter.owns(&self.state) && (!is_window || counts_alike(&self.meter, meter))
    }

    /// Delays expiry until this instant.
    pub(super) fn keep_until(&mut self, instant: Timestamp) {
        self.slot.keep_until(instant);
    }

    /// Decides a claim, and charges it if it is admitted and the mode says so.
    pub(super) fn claim(
        &mut self,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
        outgoing: &mut Outgoing,
    ) -> (bool, Verdict) {
        if claim.meter.owns(&self.state) {
            // In place: a log may be long.
            let (admitted, verdict) = claim.meter.claim(&mut self.state, claim.cost, now, mode);
            if admitted && claim.cost > 0 && mode != Mode::Peek {
                self.change_meter(claim.meter, outgoing);
                self.record_charge(claim, &verdict, outgoing);
            }
            return (admitted, verdict);
        }
        let mut state = claim.meter.fresh();
        let (admitted, verdict) = claim.meter.claim(&mut state, claim.cost, now, mode);
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            self.change_meter(claim.meter, outgoing);
            self.state = state;
            self.record_charge(claim, &verdict, outgoing);
        }
        (admitted, verdict)
    }

    /// Changes the meter. Units that are pending keep their meter.
    pub(super) fn change_meter(&mut self, meter: Meter, outgoing: &mut Outgoing) {
        if !counts_alike(&self.meter, &meter)
            && let Some(units) = self.pending.take()
        {
            outgoing.push(self.fingerprint, self.usage(units));
        }
        self.meter = meter;
    }

    /// Records a claim that was charged to the state.
    pub(super) fn record_charge(&mut self, claim: &Claim<'_>, verdict: &Verdict, outgoing: &mut Outgoing) {
        self.keep_until(verdict.reset_at); // after a charge this is `Meter::forget_at`
        let at = if let State::Bucket(state) = &self.state { state.at } else { verdict.receipt };
        self.add_pending(Units::of_charge(&claim.meter, claim.cost, verdict, at), outgoing);
    }

    pub(super) fn add_pending(&mut self, units: Units, outgoing: &mut Outgoing) {
        if self.pending.is_none() {
            outgoing.mark_dirty(self.slot.cold);
        }
        let (pending, before) = units.appended_to(self.pending);
        self.pending = Some(pending);
        if let Some(before) = before {
            outgoing.push(self.fingerprint, self.usage(before));
        }
    }

    pub(super) fn refund(&mut self, refund: &Refund<'_>, now: Timestamp, outgoing: &mut Outgoing) {
        if refund.cost == 0 || !refund.meter.owns(&self.state) {
            return;
        }
        let before = self.state.clone();
        refund.meter.refund(&mut self.state, refund.cost, refund.receipt, now);
        // The expiry does not change: the refund still has to be sent.
        let Some(units) = Units::of_refund(refund, &before, &self.state) else {
            return;
        };
        if counts_alike(&self.meter, &refund.meter) {
            self.add_pending(units, outgoing);
        } else {
            let usage = Usage { meter: refund.meter, ..self.usage(units) };
            outgoing.push(self.fingerprint, usage);
        }
    }

    /// Replaces the state by a reading of a shared store plus what is pending.
    pub(super) fn apply_reading(&mut self, usage: &Usage, reading: Reading, outgoing: &Outgoing) {
        if !counts_together(&self.meter, &usage.meter) || !self.meter.owns(&self.state) {
            return;
        }
        let fingerprint = self.fingerprint;
        let is_of_this =
            |(of, other): &&(_, Usage)| *of == fingerprint && counts_together(&other.meter, &usage.meter);
        let queue = outgoing.queue.iter().filter(is_of_this).map(|(_, other)| (other.meter, other.units));
        let pending = queue.chain(self.pending.map(|units| (self.meter, units)));
        let shared = self.cold.shared.get_or_insert_default();
        if shared.apply((&self.meter, &mut self.state), usage, reading, pending) {
            self.keep_until(self.meter.forget_at(&self.state));
        }
    }

    fn usage(&self, units: Units) -> Usage {
        Usage { name: self.cold.name.clone(), meter: self.meter, units }
    }
}
