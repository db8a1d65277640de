//! Rate limiting without a store: limits, algorithms, the contract that stores implement, and the limiter on top of it.
//!
//! Most programs use this crate through a store's crate (`ratelimit-memory`, `ratelimit-redis`, …), which re-exports
//! it. Use it directly to write a store of your own: start at [`CounterStore`].
//!
//! A check works like this: [`RateLimiter`] turns limits, key and cost into [claims](store::Claims), one for each limit. A
//! [`CounterStore`] admits all of them or none, usually in one round trip, with the arithmetic of the
//! [meters](meter::Meter). The limiter turns the store's [answer](store::Answer) into a [`Decision`].
//!
//! The root of the crate has what programs that use a limiter name. Whoever writes a store finds the contract in [`store`], the
//! arithmetic in [`meter`], and helpers in [`kit`]; [`layers`] has stores around other stores, and [`clock`] what wakes you later.
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
pub mod clock;
mod decision;
mod key;
pub mod kit;
pub mod layers;
mod limit;
mod limit_error;
mod limiter;
pub mod meter;
mod mode;
pub mod prelude;
mod random;
mod receipt;
pub mod store;
mod time;

// What users of a limiter name. Stores are written with what is in `store`, `meter` and `kit`.
pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::{Decision, LimitStatus};
pub use key::Key;
#[cfg(feature = "calendar")]
pub use limit::Calendar;
pub use limit::{Algorithm, Alignment, IntoLimits, Limit, LimitBuilder, Limits, ParseLimitError};
pub use limit_error::LimitError;
#[cfg(feature = "tokio")]
pub use limiter::Permit;
pub use limiter::{Acquire, AcquireError, CheckError, RateLimiter, Request};
pub use store::{CounterStore, DynCounterStore, ErrorKind, StoreError, SyncCounterStore};
pub use time::Timestamp;

// What most files of this crate need.
pub(crate) use answer::{Answer, Verdict, Verdicts};
pub(crate) use bounds::{MAX_CLAIMS, MAX_LOG_UNITS, MAX_PERIOD_NANOS, MAX_RATES, MAX_SEGMENTS, MAX_UNITS};
pub(crate) use claim::{Claim, Claims, Refund};
pub(crate) use clock::Timer;
pub(crate) use key::MeterId;
pub(crate) use meter::{Bucket, Log, Meter, State};
pub(crate) use mode::Mode;
pub(crate) use receipt::Receipt;
pub(crate) use store::{Applied, Promises, Time};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
