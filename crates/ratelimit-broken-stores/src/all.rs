//! The list of the stores.

use crate::broken_store::BrokenStore;
use crate::{
    apart, batches, caches, capacity, decisions, excuses, expiries, failing, features, handles, histories,
    in_process, kinds, latches, late, lifetimes, locks, names, names_in_calls, numbers, owners, quotas,
    races, refunds, repeats, reservations, server_clocks, time, waiters, wrong_expiries,
};

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
