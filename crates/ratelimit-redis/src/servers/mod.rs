//! Servers: connecting to them, finding them, following them when they change.

pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod dialer;
pub(crate) mod discovery;
pub(crate) mod link;
pub(crate) mod liveness;
pub(crate) mod nodes;
pub(crate) mod provided;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod topology;
