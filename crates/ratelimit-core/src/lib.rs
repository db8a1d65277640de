//! Rate limiting without a store: limits, algorithms, the contract that stores implement, and the limiter on top of it.
//!
//! Most programs use this crate through a store's crate (`ratelimit-memory`, `ratelimit-redis`, …), which re-exports
//! it. Use it directly to write a store of your own: start at [`CounterStore`].
//!
//! A check works like this: [`RateLimiter`] turns limits, key and cost into [`Claims`], one for each limit. A
//! [`CounterStore`] admits all of them or none, usually in one round trip, with the arithmetic of the [`Meter`]s. The
//! limiter turns the store's [`Answer`] into a [`Decision`].
//!
//! # What this crate does not do
//! No I/O, no threads, no `unsafe`. It reads the machine's clock in one place, [`SystemClock`], which is also the only
//! global state. With the feature `tokio`, it also starts tasks on your runtime (for batches, permits and calls that
//! you drop halfway), and sleeps and measures time limits on tokio's clock; with the feature
//! `calendar`, it reads the machine's database of time zones.
//!
//! # Features
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone (`Calendar`).
//! - `tokio`: waiting ([`RateLimiter::acquire`]) on the system's clock, permits that renew themselves
//!   (`RateLimiter::hold`), and the [`layers`] `Timeout`, `Bulkhead`, `Resilience` and `Batched`.
//! - `metrics`, `tracing`: metrics and events of the [`layers`].
//! - `serde`: limits as strings in serde formats; in self-describing formats, several limits also as lists of strings.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod bounds;
mod claim;
mod clock;
mod decision;
mod key;
pub mod kit;
pub mod layers;
mod limit;
mod limit_error;
mod limiter;
mod meter;
mod mode;
pub mod prelude;
mod random;
mod receipt;
mod store;
mod time;

pub use answer::{Answer, Verdict, Verdicts};
pub use bounds::{MAX_CLAIMS, MAX_LOG_UNITS, MAX_PERIOD_NANOS, MAX_RATES, MAX_SEGMENTS, MAX_UNITS};
pub use claim::{Claim, Claims, InvalidClaims, Refund};
#[cfg(feature = "tokio")]
pub use clock::TokioClock;
pub use clock::{Clock, ManualClock, SystemClock, Timer};
pub use decision::{Decision, LimitStatus};
pub use key::{Key, MeterId};
#[cfg(feature = "calendar")]
pub use limit::Calendar;
pub use limit::{Algorithm, Alignment, IntoLimits, Limit, LimitBuilder, Limits, ParseLimitError};
pub use limit_error::LimitError;
#[cfg(feature = "tokio")]
pub use limiter::Permit;
pub use limiter::{Acquire, AcquireError, CheckError, RateLimiter, Request};
pub use meter::{
    Bucket, BucketState, Charged, CorruptState, Debt, Log, LogSight, LogState, Meter, State, Window,
    WindowState, decide, refund,
};
pub use mode::Mode;
pub use store::{
    Applied, CLOCK_SLACK, CounterStore, Decisions, DynCounterStore, ErrorKind, Promises, StoreError,
    StoreUrl, SyncCounterStore, Time, UrlOption,
};
pub use time::Timestamp;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
