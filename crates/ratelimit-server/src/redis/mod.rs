//! The door for clients of Redis.

mod commands;
mod connection;
mod request;
mod throttle;

pub(crate) use connection::listen;
#[doc(hidden)] // for fuzz targets
pub use request::{ProtocolError, SplitOff, split_off};
