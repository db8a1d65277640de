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
//! See [`MemoryStore`] for its guarantees, and [`MemoryConfig`] to bound the number of meters, and [`MemoryStore::evicted`] for whether the bound is too low. Everything else is
//! [`ratelimit_core`], re-exported here.
//!
//! # Removal of expired meters
//! No thread removes them, and no check visits all meters. Each charge of a new key, and one in 32 of the others, visits
//! up to eight meters, in a sweep that goes around the whole store, and removes those that have been irrelevant for
//! [`CLOCK_SLACK`](ratelimit_core::store::CLOCK_SLACK). It skips parts of the store without any of these. So under any traffic
//! there are at most about a seventh more meters than live ones, plus a few hundred; without traffic nothing is removed,
//! and nothing grows.
//!
//! The store keeps the memory of removed meters and reuses it. Allocators return memory to the system tens of megabytes
//! at a time, and a check would wait several milliseconds for that. After a flood of keys, call
//! [`shrink_to_fit`](MemoryStore::shrink_to_fit) to free it.
//!
//! "Now" is the `now` of the claim: the store has no clock. **All limiters on one store should therefore use the same
//! clock.** A claim whose `now` is far ahead of the others would remove their meters as expired, but only up to eight
//! that it visits, because the store does not remember its time. [`SystemClock`] never
//! jumps.
//!
//! # Memory
//! A meter takes 40 bytes, however long its key, in a table that is 88 to 97 % full: about 47 bytes in total with a
//! million meters. With fewer than about 650,000 (650 per shard), the table may be down to 58 % full, because it moves
//! its meters less often. A segmented window takes eight more bytes per segment, a sliding log eight to nine per unit,
//! and after a burst up to four times as much. A shard with one meter has room for 56, in 2 kB; if there will always be
//! few meters, configure fewer [`shards`](MemoryConfig::shards). [`MemoryConfig::max_keys`] limits the number of meters;
//! [`WhenFull`] says which of them stay when it is reached.
//!
//! Instead of keys, a store compares fingerprints of 96 bits, keyed with secrets that never leave the process. The
//! probability that two of ten million meters share a fingerprint is 10<sup>-15</sup>; those two would count together.
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
mod counters;
mod due;
mod glances;
#[doc(hidden)]
pub mod kit;
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
mod sweep;
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
