//! The subjects of the broken stores.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_core::{CounterStore, DynCounterStore};

use super::flaw::Flaw;
use super::table_store::TableStore;
use ratelimit_conformance::ReferenceStore;
use ratelimit_conformance::{BoxError, Space, Subject};

/// A subject whose store is broken on purpose.
#[derive(Clone, Copy)]
pub struct BrokenStore {
    name: &'static str,
    deviation: &'static str,
    caught_by: &'static str,
    fresh: fn() -> Arc<dyn Space>,
}

impl BrokenStore {
    /// A [`TableStore`] with this flaw, what it does wrong, and the name of a case that catches it.
    pub fn new<F: Flaw>(name: &'static str, deviation: &'static str, caught_by: &'static str) -> Self {
        Self { name, deviation, caught_by, fresh: table::<F> }
    }

    pub(super) fn around<A: Around>(
        name: &'static str,
        deviation: &'static str,
        caught_by: &'static str,
    ) -> Self {
        Self { name, deviation, caught_by, fresh: around::<A> }
    }

    /// What the store does wrong.
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

/// A handle that is a store of its own around the same meters.
pub(super) trait Around: CounterStore + Sized + 'static {
    /// The state that the handles share besides the meters.
    type Shared: Default + Send + Sync + 'static;

    /// Opens a handle.
    fn around(meters: Arc<ReferenceStore>, shared: Arc<Self::Shared>) -> Self;

    /// The number of stored meters.
    fn stored(meters: &ReferenceStore, _shared: &Self::Shared) -> u64 {
        meters.len()
    }
}

/// A space of handles around the same meters.
struct Meters<O, N> {
    open: O,
    stored: N,
}

fn around<A: Around>() -> Arc<dyn Space> {
    let (meters, shared) = (Arc::new(ReferenceStore::default()), Arc::new(A::Shared::default()));
    let open = {
        let (meters, shared) = (meters.clone(), shared.clone());
        move || Arc::new(A::around(meters.clone(), shared.clone())) as Arc<dyn DynCounterStore>
    };
    Arc::new(Meters { open, stored: move || A::stored(&meters, &shared) })
}

#[async_trait]
impl<O, N> Space for Meters<O, N>
where
    O: Fn() -> Arc<dyn DynCounterStore> + Send + Sync,
    N: Fn() -> u64 + Send + Sync,
{
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok((self.open)())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some((self.stored)()))
    }
}

/// A space with one store.
struct OneTable<F>(Arc<TableStore<F>>);

fn table<F: Flaw>() -> Arc<dyn Space> {
    Arc::new(OneTable::<F>(Arc::default()))
}

#[async_trait]
impl<F: Flaw> Space for OneTable<F> {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.0.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.0.len()))
    }
}

#[async_trait]
impl Subject for BrokenStore {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok((self.fresh)())
    }
}
