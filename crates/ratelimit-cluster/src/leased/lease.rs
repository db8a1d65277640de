//! What a node holds of one meter: units that the store has charged and nobody has spent.

use ratelimit_core::{Timestamp, Verdict, Window};

use super::LeaseConfig;

/// Units of one segment of a window, charged in the store and not spent yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    /// Tells this lease from one before it on the same meter: what was taken from one is not put back into another.
    pub(super) serial: u64,
    pub(super) window: Window,
    /// The segment that the units are charged to, and in which alone they may be spent.
    pub(super) segment: u64,
    pub(super) unspent: u64,
    /// What the store said last that remains, beside what is leased; `None` before the first answer.
    pub(super) known: Option<u64>,
    /// How many units were asked for last.
    size: u64,
    /// When they were; before there was a lease, when the store was last asked.
    at: Timestamp,
    /// What gives them back: the newest instant at which the meter was charged as far as this node knows.
    pub(super) receipt: Timestamp,
    /// A trip that asks for more is under way.
    pub(super) is_asking: bool,
    /// Something was spent since the node last gave back.
    is_used: bool,
}

/// What is put towards one claim.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// The lease that it comes from; `None` if the claim has none.
    pub(super) serial: Option<u64>,
    /// Units taken out of it.
    pub(super) taken: u64,
    /// Units that are asked for beside the claim's.
    pub(super) want: u64,
    /// What is said of the claim if the lease pays for the whole of it.
    pub(super) verdict: Option<Verdict>,
}

impl Lease {
    pub(super) fn new(serial: u64, window: Window, now: Timestamp) -> Self {
        Self {
            serial,
            window,
            segment: window.place(now).0,
            unspent: 0,
            known: None,
            size: 0,
            at: now,
            receipt: now,
            is_asking: false,
            is_used: false,
        }
    }

    /// Whether its units may be spent at `now` under this limit.
    pub(super) fn serves(&self, window: &Window, now: Timestamp) -> bool {
        self.window == *window && self.segment == window.place(now).0
    }

    /// Whether its segment has ended.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.window.place(now).0 > self.segment
    }

    /// Takes what there is towards a cost, and says how much to ask for beside the rest of it.
    pub(super) fn take(&mut self, cost: u64, now: Timestamp, may_ask: bool, config: &LeaseConfig) -> Part {
        let taken = self.unspent.min(cost);
        self.unspent -= taken;
        self.is_used |= taken > 0;
        if taken == cost {
            self.receipt = self.receipt.max(now);
            return Part { serial: Some(self.serial), taken, want: 0, verdict: Some(self.verdict(now)) };
        }
        let asks = may_ask && !self.is_asking;
        let want = if asks { self.want(cost, now, config) } else { 0 };
        self.is_asking |= want > 0;
        Part { serial: Some(self.serial), taken, want, verdict: None }
    }

    /// By demand: twice the last lease if that was spent within the holding time, half of it otherwise; and never more
    /// than a share of what remains, so that there is something left for the other nodes.
    fn want(&self, cost: u64, now: Timestamp, config: &LeaseConfig) -> u64 {
        let Some(known) = self.known else { return 0 };
        let age = now.since(self.at);
        let by_demand = match self.size {
            0 if age <= config.hold => cost.saturating_mul(4),
            0 => 0,
            size if age <= config.hold => size.saturating_mul(2),
            size => size / 2,
        };
        let want = by_demand.min(known / config.share.max(1)).min(config.largest);
        // A request that takes more than a lease would hold gains nothing by one.
        if cost > want { 0 } else { want }
    }

    /// Puts units in that the store has charged together with a claim. `false` if they belong to another segment.
    pub(super) fn put(&mut self, want: u64, verdict: &Verdict, now: Timestamp) -> bool {
        self.known = Some(verdict.remaining);
        if want > 0 || self.size == 0 {
            self.at = now;
        }
        if want == 0 {
            return true;
        }
        self.size = want;
        self.is_asking = false;
        if self.window.place(verdict.receipt).0 != self.segment {
            return false;
        }
        self.unspent += want;
        self.receipt = self.receipt.max(verdict.receipt);
        true
    }

    /// Units to give back because nothing was spent since this was last asked.
    pub(super) fn idle(&mut self) -> Option<u64> {
        if std::mem::take(&mut self.is_used) {
            return None;
        }
        self.size /= 2;
        Some(std::mem::take(&mut self.unspent)).filter(|units| *units > 0)
    }

    /// All units, to be given back; none if they weigh nothing any more.
    pub(super) fn surrender(&mut self, now: Timestamp) -> Option<u64> {
        self.size /= 2;
        let units = std::mem::take(&mut self.unspent);
        let weighs = !self.is_over(now) || self.window.carried() > 0;
        Some(units).filter(|units| *units > 0 && weighs)
    }

    /// The verdict on a claim that was paid from the lease.
    fn verdict(&self, now: Timestamp) -> Verdict {
        let last = self.segment + u64::from(self.window.carried()) + 1;
        Verdict {
            fits: true,
            limit: self.window.limit(),
            remaining: self.known.unwrap_or(0).saturating_add(self.unspent).min(self.window.limit()),
            fits_at: Some(now),
            reset_at: self.window.instant(last, 0),
            ready_at: now,
            receipt: self.receipt.max(now),
        }
    }
}
