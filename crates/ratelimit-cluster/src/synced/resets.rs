//! What was reset on the spot, and is still there in the shared store.

use std::collections::HashMap;
use std::sync::Mutex;

use ratelimit_core::{Claim, Claims, Meter, Timestamp};

use crate::ledger::{Ledger, Usage};
use crate::names::{Name, lock};

/// Meters that were forgotten here, and are to be reset in the shared store before anything more is told of them.
#[derive(Debug, Default)]
pub(super) struct Resets(Mutex<HashMap<Name, Reset>>);

/// How a meter is reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reset {
    pub(super) meter: Meter,
    /// As of when: clocks may be behind those that have charged it.
    pub(super) at: Timestamp,
}

impl Resets {
    /// Forgets meters here, and keeps in mind that they are to be reset in the store.
    pub(super) fn add(&self, ledger: &Ledger, claims: Claims<'_>) {
        let mut waiting = lock(&self.0);
        for claim in claims.iter() {
            let reset = Reset::of(claim, ledger, claims.now());
            let known = waiting.entry(Name::new(&claim.id)).or_insert(reset);
            *known = Reset { at: known.at.max(reset.at), ..reset };
        }
        ledger.reset_now(claims);
    }

    /// Gives what waits.
    pub(super) fn take(&self) -> Vec<(Name, Reset)> {
        std::mem::take(&mut *lock(&self.0)).into_iter().collect()
    }

    /// Leaves waiting what could not be done, unless it has come again meanwhile.
    pub(super) fn put_back(&self, undone: impl IntoIterator<Item = (Name, Reset)>) {
        let mut waiting = lock(&self.0);
        for (name, reset) in undone {
            waiting.entry(name).or_insert(reset);
        }
    }

    /// Takes what is pending, in parts of so many, but for what would be told to a meter that is still to be reset.
    pub(super) fn take_parts(&self, ledger: &Ledger, most: usize) -> Vec<Vec<Usage>> {
        let waiting = lock(&self.0);
        let mut parts = ledger.take_parts(most);
        if !waiting.is_empty() {
            for part in &mut parts {
                ledger.put_back(part.extract_if(.., |usage| waiting.contains_key(&usage.name)));
            }
        }
        parts
    }

    /// Looks at what is known of a meter, unless that was reset since it was told: what the store has said is of what was there
    /// before.
    pub(super) fn unless_reset(&self, usage: &Usage, look: impl FnOnce(&Usage)) {
        let waiting = lock(&self.0);
        if waiting.is_empty() || !waiting.contains_key(&usage.name) {
            look(usage);
        }
    }
}

impl Reset {
    /// How a meter is reset in the store, by what is known of it here.
    pub(super) fn of(claim: &Claim<'_>, ledger: &Ledger, now: Timestamp) -> Self {
        Self { meter: claim.meter, at: ledger.newest(&claim.id).map_or(now, |newest| now.max(newest)) }
    }
}
