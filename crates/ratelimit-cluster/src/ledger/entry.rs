//! One meter, opened: what its slot and its cold part say, to be looked at and changed.

use ratelimit_core::{BucketState, Claim, Debt, Meter, Mode, Refund, State, Timestamp, Verdict};
use smallvec::smallvec;

use super::Usage;
use super::print::Print;
use super::slab::Cold;
use super::slot::Slot;
use super::units::Units;

/// A meter: what is known of it, and what was charged here and has not been told.
pub(super) struct Entry<'s> {
    pub(super) print: Print,
    /// Own units and those of the others, as far as they were told.
    pub(super) state: State,
    /// How it counted when it was charged last.
    pub(super) meter: Meter,
    pub(super) pending: Option<Units>,
    pub(super) cold: &'s mut Cold,
    slot: &'s mut Slot,
}

/// What has to be told.
#[derive(Default)]
pub(super) struct Tellings {
    /// Meters in which something is pending: the numbers of their cold parts.
    pub(super) dirty: Vec<u32>,
    /// What was pending before something else was: it counts in another segment, or at another rate.
    pub(super) outbox: Vec<(Print, Usage)>,
}

impl Tellings {
    #[inline]
    pub(super) fn note(&mut self, cold: u32) {
        self.dirty.push(cold);
    }

    #[cold]
    pub(super) fn send(&mut self, print: Print, usage: Usage) {
        self.outbox.push((print, usage));
    }

    pub(super) fn len(&self) -> usize {
        self.dirty.len() + self.outbox.len()
    }
}

impl<'s> Entry<'s> {
    /// Opens a meter that counted like this when it was charged last.
    pub(super) fn open(slot: &'s mut Slot, meter: Meter, cold: &'s mut Cold) -> Self {
        let (print, state, pending) = (slot.print(), cold.take_state(slot), slot.pending(&meter));
        Self { print, state, meter, pending, cold, slot }
    }

    /// Keeps what it has become; tells how it counts.
    pub(super) fn close(self) -> Meter {
        self.cold.keep_state(self.slot, self.state);
        self.slot.pend(self.pending);
        self.meter
    }

    /// Whether units of this meter can be counted here.
    pub(super) fn takes(&self, meter: &Meter) -> bool {
        let is_window = matches!(meter, Meter::Window(_));
        meter.owns(&self.state) && (!is_window || counts_alike(&self.meter, meter))
    }

    /// It is not to be forgotten before this instant.
    pub(super) fn keep_until(&mut self, instant: Timestamp) {
        self.slot.keep_until(instant);
    }

    /// Decides a claim, and charges it if it is admitted and the mode says so.
    pub(super) fn claim(
        &mut self,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
        tellings: &mut Tellings,
    ) -> (bool, Verdict) {
        if claim.meter.owns(&self.state) {
            // In place: a log may be long.
            let (admitted, verdict) = claim.meter.claim(&mut self.state, claim.cost, now, mode);
            if admitted && claim.cost > 0 && mode != Mode::Peek {
                self.change(claim.meter, tellings);
                self.charged(claim, &verdict, tellings);
            }
            return (admitted, verdict);
        }
        let mut state = claim.meter.fresh();
        let (admitted, verdict) = claim.meter.claim(&mut state, claim.cost, now, mode);
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            self.change(claim.meter, tellings);
            self.state = state;
            self.charged(claim, &verdict, tellings);
        }
        (admitted, verdict)
    }

    /// The limit was changed: what is pending is told as what it was.
    pub(super) fn change(&mut self, meter: Meter, tellings: &mut Tellings) {
        if !counts_alike(&self.meter, &meter)
            && let Some(units) = self.pending.take()
        {
            tellings.send(self.print, self.usage(units));
        }
        self.meter = meter;
    }

    /// Notes that a claim was charged to the state.
    pub(super) fn charged(&mut self, claim: &Claim<'_>, verdict: &Verdict, tellings: &mut Tellings) {
        self.keep_until(verdict.reset_at); // after a charge this is `Meter::forget_at`
        let at = if let State::Bucket(state) = &self.state { state.at } else { verdict.receipt };
        self.note(Units::of_charge(&claim.meter, claim.cost, verdict, at), tellings);
    }

    pub(super) fn note(&mut self, units: Units, tellings: &mut Tellings) {
        if self.pending.is_none() {
            tellings.note(self.slot.cold);
        }
        let (pending, before) = units.after(self.pending);
        self.pending = Some(pending);
        if let Some(before) = before {
            tellings.send(self.print, self.usage(before));
        }
    }

    pub(super) fn refund(&mut self, refund: &Refund<'_>, now: Timestamp, tellings: &mut Tellings) {
        if refund.cost == 0 || !refund.meter.owns(&self.state) {
            return;
        }
        let before = self.state.clone();
        refund.meter.refund(&mut self.state, refund.cost, refund.receipt, now);
        // It is kept as long as before: others still have to be told.
        let Some(units) = Units::of_refund(refund, &before, &self.state) else {
            return;
        };
        if counts_alike(&self.meter, &refund.meter) {
            self.note(units, tellings);
        } else {
            let usage = Usage { meter: refund.meter, ..self.usage(units) };
            tellings.send(self.print, usage);
        }
    }

    pub(super) fn usage(&self, units: Units) -> Usage {
        Usage { name: self.cold.name.clone(), meter: self.meter, units }
    }
}

/// A meter to which nothing was charged, in the form in which a slot keeps it.
pub(super) fn begun(meter: &Meter) -> State {
    match meter {
        Meter::Bucket(bucket) => {
            let debt = Debt::only(Timestamp::EPOCH, bucket.interval());
            State::Bucket(BucketState { at: Timestamp::EPOCH, debts: smallvec![debt] })
        }
        _ => meter.fresh(),
    }
}

/// Whether units of one meter are units of the other: only their limits may differ.
pub(super) fn counts_alike(one: &Meter, other: &Meter) -> bool {
    match (one, other) {
        (Meter::Window(one), Meter::Window(other)) => {
            (one.segment(), one.offset(), one.carried()) == (other.segment(), other.offset(), other.carried())
        }
        (Meter::Bucket(one), Meter::Bucket(other)) => one.interval() == other.interval(),
        (Meter::Log(one), Meter::Log(other)) => one.window() == other.window(),
        _ => false,
    }
}

/// Whether units of both are counted in one state.
pub(super) fn counts_together(one: &Meter, other: &Meter) -> bool {
    matches!((one, other), (Meter::Bucket(_), Meter::Bucket(_))) || counts_alike(one, other)
}
