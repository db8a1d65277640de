//! `Replicated`: counts on each node, and broadcasts what was charged to the other nodes once an interval.

mod apply;
mod broadcast;
mod config;
mod entries;
mod message;
mod outbox;
mod peers;
mod receive;
mod run;
mod session;
mod store;
mod transport;
mod wire;

pub use config::{ReplicaConfig, ReplicaStats};
pub use store::Replicated;
pub use transport::*;
