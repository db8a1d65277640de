//! Layers: stores that wrap other stores.
//!
//! Each takes any [`CounterStore`](crate::CounterStore) and is one itself, so you can stack them:
//!
//! - [`RefusalCache`] repeats recent refusals without calling the store.
//! - `Timeout` (feature `tokio`) limits how long a call may take.
//! - `Bulkhead` (feature `tokio`) limits how many calls are in progress.
//! - [`Breaker`] stops calling a store whose calls fail.
//! - [`Fallback`] calls another store if the first one does not answer: one in memory, whose limits are [`Divided`] by the
//!   number of instances, or [`Open`], which admits everything.
//! - `Resilience` (feature `tokio`) builds `Timeout`, `Bulkhead`, `Breaker` and `Fallback` in the right order.
//! - `Batched` (feature `tokio`) sends concurrent claims in shared round trips. The Redis store has it built in and
//!   enabled.
//!
//! # Metrics and events
//! With the feature `metrics`, [`Breaker`] and [`Fallback`] count through the facade of that name:
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `ratelimit_store_call_seconds` | `call` | how long a call below a breaker took: `claim`, `claim_many`, `refund` or `reset` |
//! | `ratelimit_store_call_errors_total` | `store`, `error.type` | of these, those that failed |
//! | `ratelimit_breaker_changes_total` | `to` | a breaker has opened (`open`), stays open after a probe (`open_again`), has `closed` |
//! | `ratelimit_fallback_total` | `error.type` | sets of claims that a fallback decided, by the kind of the store's error |
//!
//! With the feature `tracing`, a breaker emits an event when it opens (warn), when a probe fails (debug) and when it closes
//! (info); a fallback emits one each time that it decides (debug), with the store's error. No label and no event contains a
//! key.

#[cfg(feature = "tokio")]
mod batch_config;
#[cfg(feature = "tokio")]
mod batched;
mod breaker;
#[cfg(feature = "tokio")]
mod bulkhead;
mod divided;
mod fallback;
mod observe;
mod open;
mod refusal_cache;
#[cfg(feature = "tokio")]
mod resilience;
#[cfg(feature = "tokio")]
mod timeout;

#[cfg(feature = "tokio")]
pub use batch_config::BatchConfig;
#[cfg(feature = "tokio")]
pub use batched::Batched;
pub use breaker::{Breaker, BreakerConfig};
#[cfg(feature = "tokio")]
pub use bulkhead::Bulkhead;
pub use divided::Divided;
pub use fallback::Fallback;
pub use open::Open;
pub use refusal_cache::RefusalCache;
#[cfg(feature = "tokio")]
pub use resilience::{Guarded, Resilience};
#[cfg(feature = "tokio")]
pub use timeout::Timeout;
