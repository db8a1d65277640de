//! What was reset: what of it is still there in the shared store, and what of the store does not count any more.

use std::collections::HashMap;
use std::sync::Mutex;

use ratelimit_core::{CLOCK_SLACK, Claim, Claims, Meter, MeterId, Timestamp};

use crate::ledger::{Ledger, Reading, Usage};
use crate::names::{Name, lock};

/// Meters that were reset.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Those that were forgotten here, and are to be reset in the shared store before anything more is told of them.
    waiting: Mutex<HashMap<Name, Reset>>,
    begins: Mutex<Begins>,
}

/// From when on windows count that were reset in the store: a reset covers the segments that are carried, and the store has
/// earlier ones until it forgets them.
#[derive(Debug, Default)]
struct Begins {
    of: HashMap<Name, Begin>,
    /// From how many on those are dropped that nobody needs any more.
    crowded: usize,
}

#[derive(Clone, Copy, Debug)]
struct Begin {
    /// What the store has of segments that begin before does not count.
    from: Timestamp,
    /// When it has forgotten those.
    until: Timestamp,
}

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
        let mut waiting = lock(&self.waiting);
        for claim in claims.iter() {
            let reset = Reset::of(claim, ledger, claims.now());
            let known = waiting.entry(Name::new(&claim.id)).or_insert(reset);
            *known = Reset { at: known.at.max(reset.at), ..reset };
        }
        ledger.reset_now(claims);
    }

    /// A window is being reset in the store from this instant on, which has forgotten what was before `until`.
    pub(super) fn begin(&self, id: &MeterId<'_>, from: Timestamp, until: Timestamp, now: Timestamp) {
        let mut begins = lock(&self.begins);
        let begin = begins.of.entry(Name::new(id)).or_insert(Begin { from, until });
        *begin = Begin { from: begin.from.max(from), until: begin.until.max(until) };
        if begins.of.len() > begins.crowded.max(64) {
            begins.forget(now);
        }
    }

    /// Forgets what the store has forgotten.
    pub(super) fn forget(&self, now: Timestamp) {
        lock(&self.begins).forget(now);
    }

    /// Whether what the store says of a meter is of what was charged after its reset.
    pub(super) fn counts(&self, usage: &Usage, reading: &Reading) -> bool {
        let begins = lock(&self.begins);
        match (&usage.meter, reading) {
            (Meter::Window(window), Reading::Window { segment, .. }) if !begins.of.is_empty() => {
                let begin = begins.of.get(&usage.name);
                begin.is_none_or(|begin| window.instant(*segment, 0) >= begin.from)
            }
            _ => true,
        }
    }

    /// Gives what waits.
    pub(super) fn take(&self) -> Vec<(Name, Reset)> {
        std::mem::take(&mut *lock(&self.waiting)).into_iter().collect()
    }

    /// Leaves waiting what could not be done, unless it has come again meanwhile.
    pub(super) fn put_back(&self, undone: impl IntoIterator<Item = (Name, Reset)>) {
        let mut waiting = lock(&self.waiting);
        for (name, reset) in undone {
            waiting.entry(name).or_insert(reset);
        }
    }

    /// Takes what is pending, in parts of so many, but for what would be told to a meter that is still to be reset.
    pub(super) fn take_parts(&self, ledger: &Ledger, most: usize) -> Vec<Vec<Usage>> {
        let waiting = lock(&self.waiting);
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
        let waiting = lock(&self.waiting);
        if waiting.is_empty() || !waiting.contains_key(&usage.name) {
            look(usage);
        }
    }
}

impl Begins {
    fn forget(&mut self, now: Timestamp) {
        // Whoever is late by the slack may still ask.
        self.of.retain(|_, begin| begin.until + CLOCK_SLACK >= now);
        self.crowded = 2 * self.of.len();
    }
}

impl Reset {
    /// How a meter is reset in the store, by what is known of it here.
    pub(super) fn of(claim: &Claim<'_>, ledger: &Ledger, now: Timestamp) -> Self {
        Self { meter: claim.meter, at: ledger.newest(&claim.id).map_or(now, |newest| now.max(newest)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_has_forgotten_is_forgotten_here() {
        let resets = Resets::default();
        let kept = || lock(&resets.begins).of.len();
        let mut most = 0;
        for second in 0..10_000 {
            let [from, until] = [second, second + 100].map(Timestamp::from_secs);
            let key = second.to_be_bytes();
            resets.begin(&MeterId { namespace: "", scope: "", key: &key }, from, until, from);
            most = most.max(kept());
        }
        assert!((101..=300).contains(&most), "{most}");
        resets.forget(Timestamp::from_secs(20_000));
        assert_eq!(kept(), 0);
    }
}
