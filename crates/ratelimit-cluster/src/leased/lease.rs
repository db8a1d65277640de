//! A lease: units of one meter that are charged in the store and not spent yet.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::Window;
use ratelimit_core::store::{Receipt, Verdict};

use super::LeaseConfig;

/// A lease of units of one segment of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    /// Distinguishes this lease from an earlier one on the same meter: units taken from one are not returned to the other.
    pub(super) serial: u64,
    pub(super) window: Window,
    /// The segment to which the units are charged. They may be spent only in it.
    pub(super) segment: u64,
    pub(super) unspent: u64,
    /// The remaining units in the last answer of the store, without the leased ones; `None` before the first answer.
    pub(super) known: Option<u64>,
    /// The size of the last requested lease.
    size: u64,
    /// The time of that request; before the first lease, the time of the last request to the store.
    at: Timestamp,
    /// The receipt for a refund: the newest known instant of a charge to the meter.
    pub(super) receipt: Receipt,
    /// A request for a further lease is in flight.
    pub(super) is_requesting: bool,
    /// Whether units were spent since the node last returned units.
    is_used: bool,
}

/// The part of one claim that a lease pays.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Payment {
    /// The serial of the lease; `None` if the claim has none.
    pub(super) serial: Option<u64>,
    /// Units taken from the lease.
    pub(super) taken: u64,
    /// Units of a new lease to request along with the claim.
    pub(super) want: u64,
    /// The verdict, if the lease pays the whole claim.
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
            receipt: Receipt::at(now),
            is_requesting: false,
            is_used: false,
        }
    }

    /// Whether its units may be spent at `now` under this limit.
    pub(super) fn serves(&self, window: &Window, now: Timestamp) -> bool {
        self.window == *window && self.segment == window.place(now).0
    }

    /// Whether its segment has ended.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.window.place(now).0 > self.segment
    }

    /// Takes units towards a cost. If they do not suffice, also decides how much to lease along with the rest.
    pub(super) fn take(
        &mut self,
        cost: u64,
        now: Timestamp,
        may_lease: bool,
        config: &LeaseConfig,
    ) -> Payment {
        let taken = self.unspent.min(cost);
        self.unspent -= taken;
        self.is_used |= taken > 0;
        if taken == cost {
            self.receipt = self.receipt.max(Receipt::at(now));
            return Payment { serial: Some(self.serial), taken, want: 0, verdict: Some(self.verdict(now)) };
        }
        let may_lease = may_lease && !self.is_requesting;
        let want = if may_lease { self.want(cost, now, config) } else { 0 };
        self.is_requesting |= want > 0;
        Payment { serial: Some(self.serial), taken, want, verdict: None }
    }

    /// The size of the next lease: twice that of the last one if it was spent within the target duration, otherwise half of
    /// it. At most a share of what remains, so that the other nodes get some, too.
    fn want(&self, cost: u64, now: Timestamp, config: &LeaseConfig) -> u64 {
        let Some(known) = self.known else { return 0 };
        let age = now.since(self.at);
        let by_demand = match self.size {
            0 if age <= config.target_duration => cost.saturating_mul(4),
            0 => 0,
            size if age <= config.target_duration => size.saturating_mul(2),
            size => size / 2,
        };
        let want = by_demand.min(known / config.share.max(1)).min(config.max_lease);
        // A claim that costs more than the lease would hold gains nothing from a lease.
        if cost > want { 0 } else { want }
    }

    /// Adds units that the store charged along with a claim. `false` if it charged them to another segment.
    pub(super) fn put(&mut self, want: u64, verdict: &Verdict, now: Timestamp) -> bool {
        self.known = Some(verdict.remaining);
        if want > 0 || self.size == 0 {
            self.at = now;
        }
        if want == 0 {
            return true;
        }
        self.size = want;
        self.is_requesting = false;
        if is_elsewhere(&self.window, self.segment, verdict.receipt) {
            return false;
        }
        self.unspent += want;
        self.receipt = self.receipt.max(verdict.receipt);
        true
    }

    /// Takes all units if none was spent since the last call.
    pub(super) fn idle(&mut self) -> Option<u64> {
        if std::mem::take(&mut self.is_used) {
            return None;
        }
        self.size /= 2;
        Some(std::mem::take(&mut self.unspent)).filter(|units| *units > 0)
    }

    /// Takes all units to return them; `None` if returning them has no effect any more.
    pub(super) fn surrender(&mut self, now: Timestamp) -> Option<u64> {
        self.size /= 2;
        let units = std::mem::take(&mut self.unspent);
        let counts = !self.has_ended(now) || self.window.carried() > 0;
        Some(units).filter(|units| *units > 0 && counts)
    }

    /// The verdict on a claim that the lease paid.
    fn verdict(&self, now: Timestamp) -> Verdict {
        let last = self.segment + u64::from(self.window.carried()) + 1;
        Verdict {
            fits: true,
            limit: self.window.limit(),
            remaining: self.known.unwrap_or(0).saturating_add(self.unspent).min(self.window.limit()),
            fits_at: Some(now),
            reset_at: self.window.instant(last, 0),
            ready_at: now,
            receipt: self.receipt.max(Receipt::at(now)),
        }
    }
}

/// Whether units with this receipt were charged to another segment, or by another store, as a fallback's are.
pub(super) fn is_elsewhere(window: &Window, segment: u64, receipt: Receipt) -> bool {
    receipt.is_of_fallback() || window.place(receipt.instant()).0 != segment
}
