//! Building blocks for stores of rate limits on a database of your own.
//!
//! - [`Optimistic`] is a whole [`CounterStore`](ratelimit_core::CounterStore) on a server that can compare and write several
//!   values at once: you implement [`CompareAndSet`].
//! - [`Batch`] groups the claims of a call by meter, decides them in order, and says what to write. Use it in a transaction, or
//!   with row locks.
//! - [`Lifetime`] says how long to keep a state, [`StateCache`] remembers the last known ones.
//! - [`retry`] and [`Backoff`] repeat what a database has rolled back, and [`error_kind`] tells which errors these are.
//!
//! From [`ratelimit_core::kit`] come claims that own their data, deadlines, and [`RunToEnd`], which finishes a call that its
//! caller has dropped.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod compare_and_set;
pub mod error_kind;
mod lifetime;
mod optimistic;
mod retry;
mod state_cache;
mod versioned;

pub use batch::{Batch, Decided, Write};
pub use compare_and_set::{Change, CompareAndSet, NewValue, Outcome};
pub use lifetime::Lifetime;
pub use optimistic::Optimistic;
pub use ratelimit_core::kit::{OwnedClaim, OwnedClaims, OwnedName, OwnedRefund, RunToEnd, deadline_after};
pub use retry::{Backoff, retry};
pub use state_cache::StateCache;
pub use versioned::Versioned;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
