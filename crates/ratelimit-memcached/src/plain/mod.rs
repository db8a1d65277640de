//! The plain protocol, with the crate `memcache` and a pool of the program: for proxies and for old servers.

mod batch;
mod failure;
mod manager;
mod perform;
mod pool;

pub(crate) use batch::Batch;
pub use manager::{MemcacheManager, MemcachePool};
pub(crate) use pool::Plain;
