//! Helpers that this project's stores share, for stores of your own: claims that outlive their caller, and the recent
//! number of concurrent callers.
//!
//! Nothing here is part of the contract; you can write a store without it.

mod concurrency;
mod owned;

pub use concurrency::RecentPeak;
pub use owned::{OwnedClaim, OwnedClaims, OwnedRefund};
