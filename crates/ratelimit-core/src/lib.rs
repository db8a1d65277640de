//! Rate limiting without a store: limits, algorithms, the contract that stores fulfil, and the limiter on top of it.
//!
//! Most programs use this crate through one with a store (`ratelimit-memory`, `ratelimit-redis`, …), which
//! re-exports it. Use it directly to write a store of your own: start at [`CounterStore`].
//!
//! The way of a check: [`RateLimiter`] turns limits, key and cost into [`Claims`]; a [`CounterStore`] decides them all or
//! nothing, in one trip, by the arithmetic of the [`Meter`]s; its [`Answer`] becomes a [`Decision`].
//!
//! # What this crate does not do
//! No I/O, no threads, no global state, no `unsafe`. It reads the machine's clock in one place, [`SystemClock`].
//!
//! # Features
//! - `tokio`: waiting ([`RateLimiter::acquire`]) on the system's clock, and the [`Timeout`](https://docs.rs/ratelimit-core)
//!   decorator.
//! - `serde`: limits as strings in serde formats, several also as lists of strings.
#![forbid(unsafe_code)]

mod answer;
mod claim;
mod clock;
mod decision;
mod key;
mod limit;
mod limiter;
mod meter;
mod store;
mod time;

pub use answer::{Answer, Verdict, Verdicts};
pub use claim::{Claim, Claims, InvalidClaims, MAX_CLAIMS, Mode, Refund};
pub use clock::{Clock, ManualClock, SystemClock, Timer};
pub use decision::{Decision, LimitStatus};
pub use key::{Key, MeterId};
pub use limit::{Algorithm, Alignment, Limit, LimitBuilder, LimitError, Limits, ParseLimitError};
pub use limiter::{Acquire, AcquireError, CheckError, RateLimiter, Request};
pub use meter::{
    Bucket, BucketState, Charged, CorruptState, Debt, Log, LogSight, LogState, MAX_LOG_UNITS,
    MAX_PERIOD_NANOS, MAX_RATES, MAX_SEGMENTS, MAX_UNITS, Meter, State, Window, WindowState, decide, refund,
};
pub use store::{
    Applied, CLOCK_SLACK, CounterStore, Crowd, Decisions, DynCounterStore, ErrorKind, Promises, RefusalCache,
    StoreError, SyncCounterStore, Time,
};
#[cfg(feature = "tokio")]
pub use store::{BatchConfig, Batched, Timeout};
pub use time::Timestamp;
