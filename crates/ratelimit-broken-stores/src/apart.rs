//! Stores whose handles share nothing.

use std::sync::Arc;

use ratelimit_core::store::Time;
use ratelimit_core::{Clock, SystemClock, Timestamp};

use super::broken_store::{Around, BrokenStore};
use super::flaw::{Call, Flaw};
use super::table_store::TableStore;
use ratelimit_conformance::ReferenceStore;

pub(super) fn all() -> Vec<BrokenStore> {
    let deviation = "each handle counts for itself";
    vec![
        BrokenStore::around::<Apart>("apart", deviation, "atomic/seen-at-once"),
        BrokenStore::around::<ApartOnServers>(
            "apart-on-servers",
            deviation,
            "server-time/exact-burst-bucket",
        ),
    ]
}

/// Each handle has its own meters.
type Apart = ReferenceStore;

impl Around for Apart {
    type Shared = ();

    fn around(_: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self::default()
    }
}

/// Each handle has its own meters, and its server's time.
type ApartOnServers = TableStore<OnServers>;

#[derive(Debug, Default)]
struct OnServers;

impl Flaw for OnServers {
    const TIME: Time = Time::Server;

    fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
        SystemClock::new().now()
    }
}

impl Around for ApartOnServers {
    type Shared = ();

    fn around(_: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self::default()
    }
}
