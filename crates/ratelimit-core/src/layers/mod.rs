//! Layers: stores that wrap other stores.
//!
//! Each takes any [`CounterStore`](crate::CounterStore) and is one itself, so you can stack them:
//!
//! - [`RefusalCache`] repeats recent refusals without asking the store.
//! - `Timeout` (feature `tokio`) limits how long a call may take.
//! - `Batched` (feature `tokio`) sends concurrent claims in shared round trips. The Redis store has it built in and
//!   enabled.

#[cfg(feature = "tokio")]
mod batch_config;
#[cfg(feature = "tokio")]
mod batched;
mod refusal_cache;
#[cfg(feature = "tokio")]
mod timeout;

#[cfg(feature = "tokio")]
pub use batch_config::BatchConfig;
#[cfg(feature = "tokio")]
pub use batched::Batched;
pub use refusal_cache::RefusalCache;
#[cfg(feature = "tokio")]
pub use timeout::Timeout;
