//! A tiny store that is right, and many that are wrong in one small way each: what proves that the suite bites.
//!
//! [`ModelStore`] passes the whole suite. Each of [`all`] deviates from it in one place, as stores in the field have, and
//! says which case catches it. They serve nobody but the suite.

mod decisions;
mod lifetimes;
mod names;
mod refunds;
mod store;
mod time;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_core::DynCounterStore;

use crate::{BoxError, Space, Subject};
pub use store::{Flaw, Sound, TableStore};

/// The reference: a map under a lock, decided by [`decide`](ratelimit_core::decide), that forgets.
pub type ModelStore = TableStore<Sound>;

/// The subject of the reference store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Model;

/// A store that is broken on purpose, as a subject.
#[derive(Clone, Copy)]
pub struct BrokenStore {
    name: &'static str,
    deviation: &'static str,
    caught_by: &'static str,
    fresh: fn(bool) -> Arc<dyn Space>,
    apart: bool,
}

impl BrokenStore {
    fn new<F: Flaw>(name: &'static str, deviation: &'static str, caught_by: &'static str) -> Self {
        Self { name, deviation, caught_by, fresh: space::<F>, apart: false }
    }

    /// What it does wrong.
    pub fn deviation(&self) -> &'static str {
        self.deviation
    }

    /// The name of a case that catches it.
    pub fn caught_by(&self) -> &'static str {
        self.caught_by
    }
}

impl fmt::Debug for BrokenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}; caught by {})", self.name, self.deviation, self.caught_by)
    }
}

/// Every broken store.
pub fn all() -> Vec<BrokenStore> {
    let apart = BrokenStore {
        apart: true,
        ..BrokenStore::new::<Sound>("apart", "each handle counts for itself", "atomic/seen-at-once")
    };
    [decisions::all(), lifetimes::all(), names::all(), refunds::all(), time::all(), vec![apart]].concat()
}

/// A space with a table; handles share it, or have one each.
struct TableSpace<F> {
    store: Arc<TableStore<F>>,
    apart: bool,
}

fn space<F: Flaw>(apart: bool) -> Arc<dyn Space> {
    Arc::new(TableSpace::<F> { store: Arc::default(), apart })
}

#[async_trait]
impl<F: Flaw> Space for TableSpace<F> {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(if self.apart { Arc::new(TableStore::<F>::default()) } else { self.store.clone() })
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.store.len()))
    }
}

#[async_trait]
impl Subject for Model {
    fn name(&self) -> &str {
        "model"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(space::<Sound>(false))
    }
}

#[async_trait]
impl Subject for BrokenStore {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok((self.fresh)(self.apart))
    }
}
