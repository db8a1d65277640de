//! Stores with one bug each, which test the suite.
//!
//! Each store in [`all`] deviates from a correct one in a single place, as real stores have done, and names the case that
//! catches it.

/// Flaws of the [`TableStore`]: the name of each, what it does wrong, and a case that catches it.
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

mod apart;
mod batches;
mod broken_store;
mod caches;
mod capacity;
mod decisions;
mod excuses;
mod expiries;
mod failing;
mod features;
mod flaw;
mod handles;
mod histories;
mod in_process;
mod kinds;
mod latches;
mod late;
mod lifetimes;
mod locks;
mod names;
mod names_in_calls;
mod numbers;
mod owners;
mod quotas;
mod races;
mod refunds;
mod repeats;
mod reservations;
mod server_clocks;
mod table_store;
mod time;
mod waiters;
mod wrong_expiries;

pub use broken_store::BrokenStore;
pub use flaw::{Call, Flaw, Look, Write};
pub use table_store::TableStore;

/// Every broken store.
pub fn all() -> Vec<BrokenStore> {
    [
        batches::all(),
        caches::all(),
        capacity::all(),
        decisions::all(),
        excuses::all(),
        expiries::all(),
        wrong_expiries::all(),
        failing::all(),
        features::all(),
        handles::all(),
        histories::all(),
        in_process::all(),
        kinds::all(),
        late::all(),
        latches::all(),
        lifetimes::all(),
        locks::all(),
        names::all(),
        names_in_calls::all(),
        numbers::all(),
        owners::all(),
        quotas::all(),
        races::all(),
        refunds::all(),
        repeats::all(),
        reservations::all(),
        server_clocks::all(),
        time::all(),
        waiters::all(),
        apart::all(),
    ]
    .concat()
}
