//! Limiters on servers, and what the same client does without them. A file for each store, a row for it here.

#[cfg(feature = "peers")]
mod limitador;
mod load;
mod memcached;
mod ours;
mod pipeline;
mod postgres;
mod redis;
mod redis_log;

use anyhow::{Context as _, Result};

use crate::measure::Session;
use ours::Ours;

/// A store on a server.
pub(crate) struct Store {
    /// Its name, which is that of its server in the testbed.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Ours first, then what it is compared with.
    pub(crate) contestants: &'static [&'static str],
    /// What the others are divided by.
    pub(crate) baseline: &'static str,
    /// How logged units are weighed, where the server tells how much memory it uses for them.
    pub(crate) log: Option<LogFamily>,
    /// Connects one of them, and makes it ready for measurements of so many milliseconds.
    pub(crate) open: fn(&str, &str, u64) -> Result<Box<dyn Session>>,
}

/// Weighs logged units.
#[derive(Clone, Copy)]
pub(crate) struct LogFamily {
    /// Its name as a family.
    pub(crate) name: &'static str,
    /// Of the units there are to be about so many.
    pub(crate) weigh: fn(&str, u64) -> Result<Box<dyn Session>>,
}

/// All of them.
pub(crate) const STORES: &[Store] = &[redis::STORE, memcached::STORE, postgres::STORE];

/// A session with a contestant on the store of that name.
pub(crate) fn session(contestant: &str, store: &str, url: &str, millis: u64) -> Result<Box<dyn Session>> {
    (named(store)?.open)(contestant, url, millis)
}

/// A session that weighs logged units on the store of that name.
pub(crate) fn weigh_log(store: &str, url: &str, units: u64) -> Result<Box<dyn Session>> {
    let log = named(store)?.log.context("nothing weighs logs there")?;
    (log.weigh)(url, units)
}

fn named(name: &str) -> Result<&'static Store> {
    STORES.iter().find(|store| store.name == name).context("an unknown store")
}
