//! Limits that a fleet of nodes shares without a store request for each check.
//!
//! | | network cost | the limit can be exceeded |
//! |---|---|---|
//! | a shared store by itself | one round trip per check | never |
//! | [`Leased`] | one round trip per lease, none for the checks in between | never |
//! | [`Replicated`] | none per check; one broadcast to all nodes per interval | by what other nodes charge in the meantime |
//! | [`Synced`] | none per check; one batch to a shared store per interval | by what other nodes charge in the meantime |
//!
//! [`Leased`] claims several units at a time and spends them in this process. [`Replicated`] and [`Synced`] decide in the memory of
//! this process. Once an interval, `Replicated` broadcasts its charges to the other nodes. `Synced` sends its charges to a
//! shared store, whose answers contain the charges of the other nodes. The page *Counting together* of the project's
//! documentation explains which to choose, what happens in a network partition, and what a crash loses.
//!
//! # What this crate does not do
//! It has no network protocol of its own: nodes communicate through a store, or through a channel of a message server. It starts
//! no background task: spawn the method `run` of the type that you use. If you drop a call of `Leased` halfway, a task
//! finishes it.
//!
//! # Features
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone.
//! - `redis`: [`Replicated`] over Redis publish/subscribe, `RedisTransport`.
//! - `postgres`: [`Replicated`] over PostgreSQL `LISTEN` and `NOTIFY`, `PostgresTransport`. Needs Rust 1.94.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod leased;
mod ledger;
mod replicated;
mod synced;
mod table;

pub use leased::{LeaseConfig, Leased};
pub use ratelimit_core as core;
pub use replicated::*;
pub use synced::{SyncConfig, Synced};

use ratelimit_core::{ErrorKind, StoreError};

/// The error of a store that gave too few answers.
#[cold]
fn unanswered(store: &'static str) -> StoreError {
    let message = "the store gave fewer answers than it was asked for";
    StoreError::new(store, ErrorKind::Server, message).maybe_applied()
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
