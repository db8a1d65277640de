//! The HTTP door.

mod auth;
mod body;
mod routes;

pub(crate) use routes::Door;
