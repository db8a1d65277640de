//! Rate limiting in the memory of this process: nothing to install, nothing to run.
//!
//! A complete example:
//!
//! ```
//! use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
//!
//! let limiter = RateLimiter::new(MemoryStore::new(), "100/min".parse::<Limit>()?);
//!
//! let decision = limiter.check_now("user:7")?;
//! let status = if decision.allowed() { 200 } else { 429 };
//! # assert_eq!(status, 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same in async code, where you can replace the store by another one later (`ratelimit-redis`, …):
//!
//! ```
//! use ratelimit_memory::{Limits, MemoryStore, RateLimiter, Request};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits: Limits = "10/s; 1000/day".parse()?; // both limits are charged, or neither
//! let limiter = RateLimiter::new(MemoryStore::new(), limits);
//!
//! let decision = limiter.check(Request::new("user:7").cost(3)).await?;
//! if !decision.allowed() {
//!     println!("429, Retry-After: {:?}", decision.retry_after());
//! }
//! # assert_eq!(decision.remaining(), 7);
//! # Ok(())
//! # }
//! ```
//!
//! See [`MemoryStore`] for its guarantees, how it removes expired meters and how much memory it uses. See [`MemoryConfig`]
//! to bound the number of meters, and [`MemoryStore::evicted`] for whether the bound is too low. Everything else is
//! [`ratelimit_core`], re-exported here.
//!
//! # What this crate does not do
//! No threads, no timers, no clock, no I/O, no `unsafe`. It does not share its counts with other processes.
//!
//! # Features
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone.
//! - `tokio` (on by default): waiting ([`RateLimiter::acquire`]) on the system's clock, permits that renew themselves
//!   (`RateLimiter::hold`), and the layers `Timeout`, `Bulkhead`, `Resilience` and `Batched` (module `core::layers`). The
//!   store itself needs no runtime.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod due;
#[doc(hidden)]
pub mod kit;
mod one_claim;
mod options;
mod refusal;
#[cfg(all(test, not(miri)))]
#[path = "refusal/model.rs"]
mod refusal_model;
#[cfg(test)]
#[path = "refusal/tests.rs"]
mod refusal_tests;
mod shard;
mod shards;
mod slice;
mod store;
mod sync;
mod table;

pub use config::{MemoryConfig, WhenFull};
pub use store::MemoryStore;

pub use ratelimit_core as core;
#[doc(inline)]
pub use ratelimit_core::prelude::*;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
