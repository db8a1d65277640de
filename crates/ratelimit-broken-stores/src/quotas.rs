//! Stores that read and write in two steps while a meter has the quota of a former limit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::broken_store::BrokenStore;
use super::flaw::{Flaw, Look};

pub(super) fn all() -> Vec<BrokenStore> {
    vec![BrokenStore::new::<TornChanges>(
        "torn-changes",
        "a meter is written in a second step under another quota than at first",
        "storms/other-quota",
    )]
}

/// The quota under which each meter was charged first.
#[derive(Debug, Default)]
struct TornChanges(Mutex<HashMap<Vec<u8>, u64>>);

impl Flaw for TornChanges {
    fn torn(&self, look: &Look<'_>) -> bool {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look.claims.iter().any(|claim| {
            let limit = claim.meter.limit();
            *first.entry(claim.id.to_bytes()).or_insert(limit) != limit
        })
    }
}
