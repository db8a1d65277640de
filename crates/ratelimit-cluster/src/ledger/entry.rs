//! One meter as a node knows it.

use ratelimit_core::{CLOCK_SLACK, Claim, Meter, Mode, Refund, State, Timestamp, Verdict};

use super::Usage;
use super::print::Print;
use super::settle::Shared;
use super::units::Units;
use crate::names::Name;

/// A meter: what is known of it, and what was charged here and has not been told. Two cache lines that lie together; what
/// a charge of a known meter does not need is elsewhere.
#[repr(align(128))]
pub(super) struct Entry {
    hash: u64,
    other: u32,
    /// In whole seconds since the epoch, up to the year 2106; what lies beyond is not forgotten.
    forget_at: u32,
    /// Own units and those of the others, as far as they were told.
    pub(super) state: State,
    /// How it counted when it was charged last.
    pub(super) meter: Meter,
    pub(super) pending: Option<Units>,
    pub(super) cold: Box<Cold>,
}

const _: () = assert!(size_of::<Entry>() == 128);

/// What is needed of a meter only to tell of it.
pub(super) struct Cold {
    pub(super) name: Name,
    /// For a shared store.
    pub(super) shared: Option<Box<Shared>>,
}

/// What has to be told beside what is pending: it counts in another segment, or at another rate.
#[derive(Default)]
pub(super) struct Tellings {
    /// Meters in which something is pending.
    pub(super) dirty: Vec<Print>,
    /// What was pending before something else was.
    pub(super) outbox: Vec<(Print, Usage)>,
    /// Whether something came since this was last asked.
    pub(super) is_new: bool,
}

impl Tellings {
    #[inline]
    pub(super) fn note(&mut self, print: Print) {
        self.dirty.push(print);
        self.is_new = true;
    }

    pub(super) fn send(&mut self, print: Print, usage: Usage) {
        self.outbox.push((print, usage));
        self.is_new = true;
    }
}

impl Entry {
    pub(super) fn new(print: Print, name: Name, meter: Meter) -> Self {
        let (hash, other, state) = (print.hash, print.other, meter.fresh());
        let cold = Box::new(Cold { name, shared: None });
        Self { hash, other, forget_at: 0, state, meter, pending: None, cold }
    }

    #[inline]
    pub(super) fn is(&self, print: Print) -> bool {
        self.hash == print.hash && self.other == print.other
    }

    #[inline]
    pub(super) fn print(&self) -> Print {
        Print { hash: self.hash, other: self.other }
    }

    /// It is not to be forgotten before this instant, and the slack of late callers. It never falls, so that what anybody
    /// was told holds.
    #[inline]
    pub(super) fn keep_until(&mut self, instant: Timestamp) {
        const SLACK: u64 = CLOCK_SLACK.as_secs() * SECOND;
        let second = instant.as_nanos().saturating_add(SLACK).div_ceil(SECOND);
        self.forget_at = self.forget_at.max(u32::try_from(second).unwrap_or(u32::MAX));
    }

    /// Decides a claim, and charges it if it is admitted and the mode says so.
    #[inline]
    pub(super) fn claim(
        &mut self,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
        tellings: &mut Tellings,
    ) -> (bool, Verdict) {
        if self.meter != claim.meter {
            return self.claim_changed(claim, now, mode, tellings);
        }
        let (admitted, verdict) = claim.meter.claim(&mut self.state, claim.cost, now, mode);
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            self.charged(claim, &verdict, tellings);
        }
        (admitted, verdict)
    }

    #[cold]
    fn claim_changed(
        &mut self,
        claim: &Claim<'_>,
        now: Timestamp,
        mode: Mode,
        tellings: &mut Tellings,
    ) -> (bool, Verdict) {
        let mut state = self.state_for(&claim.meter);
        let (admitted, verdict) = claim.meter.claim(&mut state, claim.cost, now, mode);
        if admitted && claim.cost > 0 && mode != Mode::Peek {
            self.state = state;
            self.change(claim.meter, tellings);
            self.charged(claim, &verdict, tellings);
        }
        (admitted, verdict)
    }

    /// The state as another limit sees it.
    pub(super) fn state_for(&self, meter: &Meter) -> State {
        if meter.owns(&self.state) { self.state.clone() } else { meter.fresh() }
    }

    /// The limit was changed: what is pending is told as what it was.
    pub(super) fn change(&mut self, meter: Meter, tellings: &mut Tellings) {
        if !counts_alike(&self.meter, &meter)
            && let Some(units) = self.pending.take()
        {
            tellings.send(self.print(), self.usage(units));
        }
        self.meter = meter;
    }

    /// Notes that a claim was charged to the state.
    #[inline]
    pub(super) fn charged(&mut self, claim: &Claim<'_>, verdict: &Verdict, tellings: &mut Tellings) {
        self.keep_until(verdict.reset_at); // after a charge this is `Meter::forget_at`
        self.note(Units::of_charge(&claim.meter, claim.cost, verdict, &self.state), tellings);
    }

    #[inline]
    pub(super) fn note(&mut self, units: Units, tellings: &mut Tellings) {
        let Some(pending) = &mut self.pending else {
            tellings.note(self.print());
            self.pending = Some(units);
            return;
        };
        let before = *pending;
        if !pending.then(&units) {
            tellings.send(self.print(), self.usage(before));
            self.pending = Some(units);
        }
    }

    pub(super) fn refund(&mut self, refund: &Refund<'_>, now: Timestamp, tellings: &mut Tellings) {
        if refund.cost == 0 || !refund.meter.owns(&self.state) {
            return;
        }
        let before = self.state.clone();
        refund.meter.refund(&mut self.state, refund.cost, refund.receipt, now);
        // It is kept as long as before: others still have to be told.
        let Some(units) = Units::of_refund(refund, now, &before, &self.state) else {
            return;
        };
        if counts_alike(&self.meter, &refund.meter) {
            self.note(units, tellings);
        } else {
            let usage = Usage { meter: refund.meter, ..self.usage(units) };
            tellings.send(self.print(), usage);
        }
    }

    pub(super) fn usage(&self, units: Units) -> Usage {
        Usage { name: self.cold.name.clone(), meter: self.meter, units }
    }

    /// Whether it can no longer influence a decision.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.forget_at != u32::MAX && u64::from(self.forget_at) <= now.as_nanos() / SECOND
    }
}

const SECOND: u64 = 1_000_000_000;

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
