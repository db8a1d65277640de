//! Counting together without asking a store each time: decorators that give a fleet of nodes one limit.
//!
//! | | a check costs | more than the limit is admitted |
//! |---|---|---|
//! | a shared store by itself | a trip | never |
//! | [`Leased`] | a trip for each lease, nothing in between | never |
//! | [`Replicated`] | nothing; each interval a message to all of what was charged | by what others charge meanwhile |
//! | [`Synced`] | nothing; each interval a batch of what was charged | by what others charge meanwhile |
//!
//! [`Leased`] claims several units at a time and spends them in this process. [`Replicated`] and [`Synced`] answer from this
//! process's memory: the one tells the other nodes each interval what it has charged, the other a shared store, whose answer
//! carries the others' back. Which to choose, what a partition does and what a crash loses is told on the page *Counting
//! together* of the project's documentation.
//!
//! # What this crate does not do
//! No network of its own: nodes meet in a store, or on a channel of a server that carries messages. It starts no task: `run`
//! of each type is a future to be spawned.
//!
//! # Features
//! - `redis`: [`Replicated`] by Redis publish/subscribe, `RedisTransport`.
//! - `postgres`: [`Replicated`] by PostgreSQL's LISTEN and NOTIFY, `PostgresTransport`.
#![forbid(unsafe_code)]

mod leased;
mod ledger;
mod names;
mod replicated;
mod synced;

pub use leased::{LeaseConfig, Leased};
pub use ratelimit_core as core;
pub use replicated::*;
pub use synced::{SyncConfig, Synced};
