//! Building blocks for stores of rate limits on a database or a server of your own. The library's stores on Redis, Memcached and
//! PostgreSQL are made of them too.
//!
//! # Deciding
//! - [`Optimistic`] is a whole [`CounterStore`](ratelimit_core::CounterStore) on a server that can compare and write several
//!   values at once: you implement [`CompareAndSet`].
//! - [`Batch`] groups the claims of a call by meter, decides them in order, and says what to write. Use it in a transaction, or
//!   with row locks.
//! - [`OwnedClaims`] and [`OwnedRefund`] own their data, so that a queue, a task or a thread can hold them.
//!
//! # Storing
//! - [`Lifetime`] says how long to keep a state.
//! - [`Versioned`] is a state with a version that never comes back, [`StateCache`] remembers the last known ones.
//! - [`bounded_name`] fits a meter's name into the longest key that a database allows.
//! - [`MeterScan`] is what a store reports after it has listed its meters.
//!
//! # Calls
//! - [`deadline_after`] is the deadline of a call, [`halfway_to`] how long it may wait for its turn.
//! - [`RunToEnd`] finishes a call that its caller has dropped.
//! - [`retry()`] and [`Backoff`] repeat what a database has rolled back.
//! - [`all_of`] is the outcome of a call that was made in parts.
//! - [`RecentPeak`] says how many callers there are, for a store that batches. Around a store,
//!   [`Batched`](ratelimit_core::layers::Batched) shares round trips between callers, and
//!   [`RefusalCache`](ratelimit_core::layers::RefusalCache) repeats refusals without any.
//!
//! # Connections
//! - [`InTurn`] holds several connections to a server, [`SingleFlight`] opens one for all callers that wait for it.
//! - `tcp` and `tls` open and encrypt connections, with the features of these names; [`Certificates`] are those of a
//!   configuration.
//!
//! # Configuration and errors
//! - [`options`] reads those options of an address that several stores have, [`setters!`] defines the setters of a
//!   configuration.
//! - [`Errors`] words the errors that every store has, [`error_kind`] tells the kind of a database's errors by their codes, and
//!   [`Throttle`] keeps them from flooding a log.
//!
//! # Features
//! - `tcp`: connections over TCP.
//! - `tls`: encrypted connections, by rustls.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod certificates;
mod compare_and_set;
pub mod error_kind;
mod errors;
mod in_turn;
mod lifetime;
mod name;
mod optimistic;
pub mod options;
mod random;
mod retry;
mod single_flight;
mod state_cache;
#[cfg(feature = "tcp")]
#[cfg_attr(docsrs, doc(cfg(feature = "tcp")))]
pub mod tcp;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub mod tls;
mod versioned;

pub use batch::{Batch, Decided, Write};
pub use certificates::Certificates;
pub use compare_and_set::{Change, CompareAndSet, NewValue, Outcome};
pub use errors::Errors;
pub use in_turn::InTurn;
pub use lifetime::Lifetime;
pub use name::bounded_name;
pub use optimistic::Optimistic;
pub use ratelimit_core::kit::{
    MeterScan, OwnedClaim, OwnedClaims, OwnedName, OwnedRefund, RecentPeak, RunToEnd, Throttle, all_of,
    deadline_after, halfway_to, setters,
};
pub use retry::{Backoff, retry};
pub use single_flight::SingleFlight;
pub use state_cache::StateCache;
pub use versioned::Versioned;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
