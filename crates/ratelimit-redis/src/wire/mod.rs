//! What is sent to a server, and how its replies are read.

pub(crate) mod codec;
pub(crate) mod fast;
pub(crate) mod fast_batch;
pub(crate) mod keys;
pub(crate) mod script;
pub(crate) mod value;
pub(crate) mod verdict;
