//! Resets: those that still have to be made in the shared store, and the readings that they invalidate.

use std::collections::HashMap;
use std::sync::Mutex;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{CLOCK_SLACK, Claim, Claims, MeterId};

use crate::ledger::{Ledger, Reading, Usage};
use crate::table::lock;
use ratelimit_core::kit::OwnedName;

/// Meters that were reset.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Meters that were reset on this node, and have to be reset in the shared store before more is sent for them.
    pending: Mutex<HashMap<OwnedName, Reset>>,
    cutoffs: Mutex<Cutoffs>,
}

/// For windows that were reset in the store, the first instant that counts. A reset removes the carried segments; the store
/// keeps earlier ones until it forgets them.
#[derive(Debug, Default)]
struct Cutoffs {
    of: HashMap<OwnedName, Cutoff>,
    /// The number of cutoffs from which on expired ones are dropped.
    prune_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Cutoff {
    /// Segments that begin earlier do not count.
    from: Timestamp,
    /// When the store has forgotten those segments.
    until: Timestamp,
}

/// A reset of one meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reset {
    pub(super) meter: Meter,
    /// The time of the reset, or of the newest charge if that is later, because the clock of this node may be behind.
    pub(super) at: Timestamp,
}

impl Resets {
    /// Resets meters on this node, and records that they have to be reset in the store. Returns these resets.
    pub(super) fn add(&self, ledger: &Ledger, claims: Claims<'_>) -> Vec<(OwnedName, Reset)> {
        let mut pending = lock(&self.pending);
        let record = |claim: &Claim<'_>| {
            let (name, reset) = (OwnedName::new(&claim.id), Reset::of(claim, ledger, claims.now()));
            let known = pending.entry(name.clone()).or_insert(reset);
            *known = Reset { at: known.at.max(reset.at), ..reset };
            (name, *known)
        };
        let resets = claims.iter().map(record).collect();
        ledger.reset_now(claims, false);
        resets
    }

    /// Records that segments of a window before `from` no longer count. The store has forgotten them at `until`.
    pub(super) fn add_cutoff(&self, id: &MeterId<'_>, from: Timestamp, until: Timestamp, now: Timestamp) {
        let mut cutoffs = lock(&self.cutoffs);
        let cutoff = cutoffs.of.entry(OwnedName::new(id)).or_insert(Cutoff { from, until });
        *cutoff = Cutoff { from: cutoff.from.max(from), until: cutoff.until.max(until) };
        if cutoffs.of.len() > cutoffs.prune_at.max(64) {
            cutoffs.expire(now);
        }
    }

    /// Drops cutoffs for segments that the store has forgotten.
    pub(super) fn expire(&self, now: Timestamp) {
        lock(&self.cutoffs).expire(now);
    }

    /// Whether a reading counts: it is not of a segment before a reset.
    pub(super) fn counts(&self, usage: &Usage, reading: &Reading) -> bool {
        let cutoffs = lock(&self.cutoffs);
        match (&usage.meter, reading) {
            (Meter::Window(window), Reading::Window { segment, .. }) => {
                let cutoff = cutoffs.of.get(&usage.name);
                cutoff.is_none_or(|cutoff| window.instant(*segment, 0) >= cutoff.from)
            }
            _ => true,
        }
    }

    /// The pending resets.
    pub(super) fn to_make(&self) -> Vec<(OwnedName, Reset)> {
        lock(&self.pending).iter().map(|(name, reset)| (name.clone(), *reset)).collect()
    }

    /// Records that a reset was made in the store. It stays pending if there is a newer one of the same meter.
    pub(super) fn made(&self, name: &OwnedName, reset: &Reset) {
        let mut pending = lock(&self.pending);
        if pending.get(name) == Some(reset) {
            pending.remove(name);
        }
    }

    /// Takes pending usages from the ledger in parts of at most `max`, except those of meters with a pending reset.
    pub(super) fn take_parts(&self, ledger: &Ledger, max: usize) -> Vec<Vec<Usage>> {
        let pending = lock(&self.pending);
        let mut parts = ledger.take_parts(max);
        for part in &mut parts {
            ledger.put_back(part.extract_if(.., |usage| pending.contains_key(&usage.name)).collect());
        }
        parts
    }

    /// Calls `f` with a usage unless its meter has a pending reset: the store's answers then describe the meter before the
    /// reset.
    pub(super) fn if_no_reset_is_pending(&self, usage: &Usage, f: impl FnOnce(&Usage)) {
        let pending = lock(&self.pending);
        if !pending.contains_key(&usage.name) {
            f(usage);
        }
    }
}

impl Cutoffs {
    fn expire(&mut self, now: Timestamp) {
        // Callers may be late by the slack.
        self.of.retain(|_, cutoff| cutoff.until + CLOCK_SLACK >= now);
        self.prune_at = 2 * self.of.len();
    }
}

impl Reset {
    /// A reset at `now`, or at the newest known charge if that is later.
    fn of(claim: &Claim<'_>, ledger: &Ledger, now: Timestamp) -> Self {
        Self { meter: claim.meter, at: ledger.newest(&claim.id, now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutoffs_expire_with_their_segments() {
        let resets = Resets::default();
        let kept = || lock(&resets.cutoffs).of.len();
        let mut most = 0;
        for second in 0..10_000 {
            let [from, until] = [second, second + 100].map(Timestamp::from_secs);
            let key = second.to_be_bytes();
            resets.add_cutoff(&MeterId { namespace: "", scope: "", key: &key }, from, until, from);
            most = most.max(kept());
        }
        assert!((101..=300).contains(&most), "{most}");
        resets.expire(Timestamp::from_secs(20_000));
        assert_eq!(kept(), 0);
    }
}
