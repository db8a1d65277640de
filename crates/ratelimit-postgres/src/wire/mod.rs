//! What is sent to a server, and how its replies are read.

pub(crate) mod call;
pub(crate) mod claims;
pub(crate) mod codec;
pub(crate) mod reply;
pub(crate) mod schema;
pub(crate) mod text;
