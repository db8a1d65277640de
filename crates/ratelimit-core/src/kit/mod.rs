//! Helpers that this project's stores share, for stores of your own: claims and names that own their data, calls that run
//! to completion although the caller has dropped them, their deadlines, the recent number of concurrent callers, the
//! progress of a listing of meters, the outcome of a call in parts, durations and errors as text, which
//! bucket is a ban, events that are logged at most once a second, the figure of evictions, and setters of configurations.
//!
//! Nothing here is part of the contract. You can write a store without it.

mod all_of;
mod concurrency;
#[cfg(feature = "tokio")]
mod deadline;
mod error_text;
mod evicted;
mod meter_scan;
mod name;
mod owned;
#[cfg(feature = "tokio")]
mod run_to_end;
mod setters;
mod throttle;

#[doc(inline)]
pub use crate::__setters as setters;
pub use crate::limit::parse_duration;
pub use all_of::all_of;
pub use concurrency::RecentPeak;
#[cfg(feature = "tokio")]
pub use deadline::{deadline_after, halfway_to};
pub use error_text::write_error;
pub use evicted::count_evicted;
pub use meter_scan::MeterScan;
pub use name::OwnedName;
pub use owned::{OwnedClaim, OwnedClaims, OwnedRefund};
#[cfg(feature = "tokio")]
pub use run_to_end::RunToEnd;
pub use throttle::Throttle;
