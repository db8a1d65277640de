//! The plain protocol, with the crate `memcache` and a pool of the program: for proxies and for old servers.

mod failure;
mod manager;
mod perform;
mod pool;

pub use manager::{MemcacheManager, MemcachePool};
pub(crate) use pool::send;
