//! A store whose handles share nothing.

use std::sync::Arc;

use super::broken_store::{Around, BrokenStore};
use crate::reference_store::ReferenceStore;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![BrokenStore::around::<Apart>("apart", "each handle counts for itself", "atomic/seen-at-once")]
}

/// Each handle has its own meters.
type Apart = ReferenceStore;

impl Around for Apart {
    type Shared = ();

    fn around(_: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self::default()
    }
}
