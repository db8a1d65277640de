//! Stores with one bug each, which test the conformance suite.
//!
//! Each store in [`all`] deviates from a correct one in a single place, as real stores have done, and names the case that
//! catches it.
#![forbid(unsafe_code)]

/// Flaws of the [`TableStore`]: the name of each, what it does wrong, and a case that catches it.
macro_rules! flaws {
    ($($flaw:ident $name:literal: $deviation:literal, $caught_by:literal { $($body:tt)* })*) => {
        pub(super) fn all() -> Vec<$crate::broken_store::BrokenStore> {
            vec![$($crate::broken_store::BrokenStore::new::<$flaw>($name, $deviation, $caught_by)),*]
        }
        $(
            #[derive(Debug, Default)]
            struct $flaw;
            impl $crate::flaw::Flaw for $flaw { $($body)* }
        )*
    };
}

mod all;
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
mod forgotten;
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

pub use all::all;
pub use broken_store::BrokenStore;
pub use flaw::{Call, Flaw, Look, Write};
pub use table_store::TableStore;
