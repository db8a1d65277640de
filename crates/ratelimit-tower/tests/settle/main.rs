//! Requests that are settled at their true cost.

mod bodies;
mod ends;
#[cfg(feature = "metrics")]
mod failures;
mod held;
mod rig;
mod sources;
#[path = "../support/mod.rs"]
mod support;
mod time;
mod together;
