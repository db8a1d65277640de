//! What is sent to a server, and how its replies are read.

pub(crate) mod commands;
pub(crate) mod keys;
pub(crate) mod lifetime;
pub(crate) mod reply;
