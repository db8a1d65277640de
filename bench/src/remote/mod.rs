//! Limiters on servers, compared with bare commands on the same client. Each store has a file and a row in [`STORES`].

#[cfg(feature = "peers")]
mod limitador;
mod load;
mod memcached;
mod ours;
mod pipeline;
mod postgres;
mod redis;
mod redis_connection;
mod redis_log;
mod store;

use anyhow::{Context as _, Result};

use crate::session::Session;
pub(crate) use store::Store;

/// All stores.
pub(crate) const STORES: &[Store] = &[redis::STORE, memcached::STORE, postgres::STORE];

/// Opens a session with a contestant on a store.
pub(crate) fn session(contestant: &str, store: &str, url: &str, millis: u64) -> Result<Box<dyn Session>> {
    (named(store)?.open)(contestant, url, millis)
}

/// Opens a session that measures the memory of logs on a store.
pub(crate) fn weigh_log(store: &str, url: &str, units: u64) -> Result<Box<dyn Session>> {
    let log = named(store)?.log.context("the memory of logs is not measured on this store")?;
    (log.weigh)(url, units)
}

fn named(name: &str) -> Result<&'static Store> {
    STORES.iter().find(|store| store.name == name).context("unknown store")
}
