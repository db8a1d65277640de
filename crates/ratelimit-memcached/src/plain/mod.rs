//! The plain protocol, with the crate `memcache` and a pool of the program: for proxies and for old servers.

mod config;
mod failure;
mod manager;
mod order;
mod perform;
mod pool;

pub use config::PlainConfig;
pub use manager::{MemcacheManager, MemcachePool};
pub(crate) use order::Orders;
pub(crate) use pool::Plain;
