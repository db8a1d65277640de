//! Counting together without asking a store each time: decorators that give a fleet of nodes one limit.
//!
//! | | a check costs | more than the limit is admitted |
//! |---|---|---|
//! | a shared store by itself | a trip | never |
//! | [`Leased`] | a trip for each lease, nothing in between | never |
//!
//! [`Leased`] claims several units at a time and spends them in this process. Which to choose, what a partition does and
//! what a crash loses is told on the page *Counting together* of the project's documentation.
//!
//! # What this crate does not do
//! No network of its own: nodes meet in a store. It starts no task: `run` of each type is a future to be spawned.
#![forbid(unsafe_code)]

mod leased;
mod names;

pub use leased::{LeaseConfig, Leased};
pub use ratelimit_core as core;
