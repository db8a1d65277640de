//! Servers: connecting to them, finding them, following them when they change.

pub(crate) mod first_migration;
pub(crate) mod link;
pub(crate) mod source;
