//! A tiny store that is right, and many that are wrong in one small way each: what proves that the suite bites.
//!
//! [`ModelStore`] passes the whole suite. Each of [`all`] deviates from it in one place, as stores in the field have, and
//! says which case catches it. They serve nobody but the suite.

/// Flaws of the [`TableStore`], each with its name, what it does wrong, and a case that catches it.
macro_rules! flaws {
    ($($flaw:ident $name:literal: $deviation:literal, $caught_by:literal { $($body:tt)* })*) => {
        pub(super) fn all() -> Vec<$crate::broken_stores::BrokenStore> {
            vec![$($crate::broken_stores::BrokenStore::new::<$flaw>($name, $deviation, $caught_by)),*]
        }
        $(
            #[derive(Debug, Default)]
            struct $flaw;
            impl $crate::broken_stores::Flaw for $flaw { $($body)* }
        )*
    };
}

mod batches;
mod caches;
mod capacity;
mod decisions;
mod flaw;
mod latches;
mod late;
mod lifetimes;
mod locks;
mod names;
mod names_in_calls;
mod numbers;
mod races;
mod refunds;
mod reservations;
mod server_clocks;
mod store;
mod time;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_core::{CounterStore, DynCounterStore};

use crate::{BoxError, Space, Subject};
pub use flaw::{Call, Flaw, Look, Sound, SoundByServer, Write};
pub use store::TableStore;

/// The reference: a map under a lock, decided by [`decide`](ratelimit_core::decide), that forgets.
pub type ModelStore = TableStore<Sound>;

/// The subject of the reference store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Model;

/// The subject of the reference store by a clock of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelByServer;

/// A store that is broken on purpose, as a subject.
#[derive(Clone, Copy)]
pub struct BrokenStore {
    name: &'static str,
    deviation: &'static str,
    caught_by: &'static str,
    fresh: fn() -> Arc<dyn Space>,
}

impl BrokenStore {
    fn new<F: Flaw>(name: &'static str, deviation: &'static str, caught_by: &'static str) -> Self {
        Self { name, deviation, caught_by, fresh: table::<F> }
    }

    fn around<A: Around>(name: &'static str, deviation: &'static str, caught_by: &'static str) -> Self {
        Self { name, deviation, caught_by, fresh: around::<A> }
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
    [
        batches::all(),
        caches::all(),
        capacity::all(),
        decisions::all(),
        late::all(),
        latches::all(),
        lifetimes::all(),
        locks::all(),
        names::all(),
        names_in_calls::all(),
        numbers::all(),
        races::all(),
        refunds::all(),
        reservations::all(),
        server_clocks::all(),
        time::all(),
        vec![BrokenStore::around::<Apart>("apart", "each handle counts for itself", "atomic/seen-at-once")],
    ]
    .concat()
}

/// Handles, each a store of its own around the same meters.
pub(crate) trait Around: CounterStore + Sized + 'static {
    /// What the handles share besides the meters.
    type Shared: Default + Send + Sync + 'static;

    /// A further handle.
    fn around(meters: Arc<ModelStore>, shared: Arc<Self::Shared>) -> Self;
}

/// A space with the meters, and what opens a handle on them.
struct Meters<O> {
    meters: Arc<ModelStore>,
    open: O,
}

fn around<A: Around>() -> Arc<dyn Space> {
    let (meters, shared) = (Arc::new(ModelStore::default()), Arc::new(A::Shared::default()));
    let open = {
        let meters = meters.clone();
        move || Arc::new(A::around(meters.clone(), shared.clone())) as Arc<dyn DynCounterStore>
    };
    Arc::new(Meters { meters, open })
}

#[async_trait]
impl<O: Fn() -> Arc<dyn DynCounterStore> + Send + Sync> Space for Meters<O> {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok((self.open)())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.meters.len()))
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

/// Each handle has meters of its own.
type Apart = ModelStore;

impl Around for Apart {
    type Shared = ();

    fn around(_: Arc<ModelStore>, _: Arc<()>) -> Self {
        Self::default()
    }
}

#[async_trait]
impl Subject for Model {
    fn name(&self) -> &str {
        "model"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(table::<Sound>())
    }
}

#[async_trait]
impl Subject for ModelByServer {
    fn name(&self) -> &str {
        "model-by-server"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(table::<SoundByServer>())
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
