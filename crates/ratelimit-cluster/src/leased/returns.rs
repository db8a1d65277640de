//! Units of leases that return to the store.

use ratelimit_core::kit::OwnedName;
use ratelimit_core::meter::{Meter, Window};
use ratelimit_core::store::{MeterId, Receipt, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};

use super::lease::Lease;

/// Units to return to the store.
pub(super) struct Return {
    name: OwnedName,
    window: Window,
    units: u64,
    receipt: Receipt,
}

impl Return {
    pub(super) fn new(id: &MeterId<'_>, lease: &Lease, units: u64) -> Self {
        Self { name: OwnedName::new(id), window: lease.window, units, receipt: lease.receipt }
    }

    fn refund(&self) -> Refund<'_> {
        let meter = Meter::Window(self.window);
        Refund { id: self.name.id(), cost: self.units, meter, receipt: self.receipt }
    }
}

/// How many leases are returned in one call.
const RETURNS: usize = 64;

/// Returns units to the store. Those whose refund fails are lost until their window ends.
pub(super) async fn return_units<S: CounterStore>(
    store: &S,
    now: Timestamp,
    back: &[Return],
) -> Result<(), StoreError> {
    let mut done = Ok(());
    for some in back.chunks(RETURNS) {
        let refunds: Vec<Refund<'_>> = some.iter().map(Return::refund).collect();
        done = store.refund(now, &refunds).await.and(done);
    }
    done
}
