//! A view of one meter that combines its slot and its cold part.

use std::collections::VecDeque;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::{Mode, Refund, Verdict};
use ratelimit_memory::kit::{Demand, Fingerprint, Slab, expiry};

use super::cold::Cold;
use super::merge;
use super::reading::Reading;
use super::shared_state::SharedState;
use super::slot::Slot;
use super::units::{Units, counts_alike, counts_together, newest, signed};
use super::usage::Usage;

/// A meter: its state, and its pending units. `Shard::open` takes them out of the slot and puts them back.
pub(super) struct Entry<'s> {
    pub(super) fingerprint: Fingerprint,
    /// Own units, and those received from other nodes.
    pub(super) state: State,
    /// The meter at the time of its last charge.
    pub(super) meter: Meter,
    pub(super) pending: Option<Units>,
    pub(super) slot: &'s mut Slot,
    pub(super) colds: &'s mut Slab<Cold>,
    pub(super) outgoing: &'s mut Outgoing,
    /// Whether the state may contain units that other nodes have sent, and may have refunded.
    pub(super) is_merged: bool,
}

/// Usages that have to be sent.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Meters with pending units, or that have to be read: the lower halves of their fingerprints.
    pub(super) dirty: Vec<u64>,
    /// Usages that are older than what is pending in their meter's slot, in order.
    pub(super) queue: VecDeque<(Fingerprint, Usage)>,
}

impl Outgoing {
    /// Records that a claim on a meter was refused. The meter is read, because other nodes may have given back or reset
    /// what this node counts, and it charges nothing before it knows.
    #[inline]
    pub(super) fn list_reading(&mut self, slot: &mut Slot) {
        if !slot.is_listed() {
            self.dirty.push(slot.low);
        }
        slot.set_reading();
    }
}

impl Entry<'_> {
    /// What is kept for counting with a shared store.
    pub(super) fn shared(&self) -> Option<&SharedState> {
        self.colds.at(self.slot.cold).shared.as_deref()
    }

    /// The same, to change it.
    pub(super) fn shared_mut(&mut self) -> &mut SharedState {
        self.colds.at_mut(self.slot.cold).shared.get_or_insert_default()
    }

    /// Whether units of this meter can be added to the state.
    pub(super) fn accepts(&self, meter: &Meter) -> bool {
        let is_window = matches!(meter, Meter::Window(_));
        meter.owns(&self.state) && (!is_window || counts_alike(&self.meter, meter))
    }

    /// Delays expiry until this instant. The expiry never moves back, so that earlier answers stay valid.
    pub(super) fn keep_until(&mut self, instant: Timestamp) {
        expiry::keep_until(&mut self.slot.forget_at, instant);
    }

    /// Decides a claim, and charges it if it is admitted and the mode says so.
    pub(super) fn claim(&mut self, demand: Demand<'_>) -> (bool, Verdict) {
        let (admitted, verdict) = demand.meter.claim(&mut self.state, demand.cost, demand.now, demand.mode);
        if admitted && demand.charges() {
            self.record_charge(demand.meter, demand.cost, &verdict);
        } else if !admitted && demand.mode == Mode::Charge && self.pending.is_none() {
            self.outgoing.list_reading(self.slot);
        }
        (admitted, verdict)
    }

    /// Records that units were charged to the state under this meter. Units that are pending keep their meter.
    pub(super) fn record_charge(&mut self, meter: &Meter, cost: u64, verdict: &Verdict) {
        if !counts_alike(&self.meter, meter) {
            self.queue_pending();
        }
        self.meter = *meter;
        self.keep_until(verdict.reset_at); // after a charge this is `Meter::forget_at`
        let at = if let State::Bucket(state) = &self.state { state.at } else { verdict.receipt.instant() };
        self.add_pending(Units::of_charge(meter, cost, verdict, at));
    }

    pub(super) fn add_pending(&mut self, units: Units) {
        if self.pending.is_none() && !self.slot.is_listed() {
            self.outgoing.dirty.push(self.slot.low);
        }
        let (pending, before) = units.appended_to(self.pending);
        self.pending = Some(pending);
        if let Some(before) = before {
            self.queue(self.meter, before);
        }
    }

    pub(super) fn refund(&mut self, refund: &Refund<'_>, now: Timestamp) {
        if refund.cost == 0 || !refund.meter.owns(&self.state) {
            return;
        }
        let before = self.state.clone();
        let of_log = Units::Log { newest: refund.receipt.instant(), units: -signed(refund.cost) };
        let is_log = matches!(refund.meter, Meter::Log(_));
        if is_log && of_log.have_left(&refund.meter, now.max(newest(&before))) {
            return;
        }
        if is_log && self.is_merged {
            // Refunds of other nodes may have removed these units, and left later ones of theirs.
            merge::add(&refund.meter, &mut self.state, &of_log);
        } else {
            refund.meter.refund(&mut self.state, refund.cost, refund.receipt, now);
        }
        // The expiry does not change: the refund still has to be sent.
        let Some(units) = Units::of_refund(refund, &before, &self.state) else {
            return;
        };
        if counts_alike(&self.meter, &refund.meter) {
            self.add_pending(units);
        } else {
            self.queue(refund.meter, units);
        }
    }

    /// Replaces the state by a reading of a shared store plus what is pending.
    pub(super) fn apply_reading(&mut self, usage: &Usage, reading: Reading) {
        if !counts_together(&self.meter, &usage.meter) || !self.meter.owns(&self.state) {
            return;
        }
        let queue = self
            .outgoing
            .queue
            .iter()
            .filter(|(of, other)| *of == self.fingerprint && counts_together(&other.meter, &usage.meter));
        let queue = queue.map(|(_, other)| (other.meter, other.units));
        let pending = queue.chain(self.pending.map(|units| (self.meter, units)));
        let shared = self.colds.at_mut(self.slot.cold).shared.get_or_insert_default();
        if shared.apply((&self.meter, &mut self.state), usage, reading, pending) {
            self.keep_until(self.meter.forget_at(&self.state));
        }
    }

    /// What is pending as refunds of a meter, in its units.
    pub(super) fn pending_refunds(&self, meter: &Meter) -> i64 {
        let queue = self.outgoing.queue.iter().filter(|(of, _)| *of == self.fingerprint);
        let pending = queue.map(|(_, usage)| (usage.meter, usage.units));
        let pending = pending.chain(self.pending.map(|units| (self.meter, units)));
        let refunds = pending.filter(|(of, units)| counts_alike(of, meter) && units.is_refund());
        refunds.map(|(_, units)| units.refunded()).fold(0, i64::saturating_add)
    }

    /// Removes unsure units that had drained before these were charged, which have been sent.
    pub(super) fn drain_unsure(&mut self, sent: &Units) {
        let Some(began) = sent.began().filter(|_| self.shared().is_some_and(SharedState::is_unsure)) else {
            return;
        };
        // Units of another rate may be older and still pending.
        let queue = self.outgoing.queue.iter().filter(|(of, _)| *of == self.fingerprint);
        let pending = queue.map(|(_, usage)| usage.units).chain(self.pending);
        let first = pending.filter_map(|units| units.began()).fold(began, Timestamp::min);
        self.shared_mut().drain_until(first);
    }

    /// Moves what is pending to the queue.
    pub(super) fn queue_pending(&mut self) {
        if let Some(units) = self.pending.take() {
            self.queue(self.meter, units);
        }
    }

    /// Adds a usage that cannot be combined with what is pending.
    #[cold]
    fn queue(&mut self, meter: Meter, units: Units) {
        let name = self.colds.at(self.slot.cold).name.clone();
        self.outgoing.queue.push_back((self.fingerprint, Usage { name, meter, units }));
    }
}
