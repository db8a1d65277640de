//! Counting in each node, and telling the others each interval.

mod config;
mod entries;
mod hearing;
mod message;
mod origins;
mod outbox;
mod store;
mod talk;
mod telling;
mod transport;
mod wire;

pub use config::{ReplicaConfig, ReplicaStats};
pub use store::Replicated;
pub use transport::*;
