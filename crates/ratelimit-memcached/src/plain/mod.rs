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

use ratelimit_core::StoreError;

use crate::MemcachedStore;
use crate::space::Space;
use crate::trip::Connections;

impl MemcachedStore {
    /// A store that sends only the plain text protocol, over the connections of this pool, with [`PlainConfig::default`]:
    /// for a proxy (twemproxy; mcrouter is not tested), and for servers without meta commands.
    ///
    /// It connects on its first call.
    ///
    /// ```
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratelimit_memcached::{MemcacheManager, MemcachePool, MemcachedStore};
    ///
    /// let manager = MemcacheManager::new("memcached://127.0.0.1:22121")?;
    /// let pool = MemcachePool::builder(manager).max_size(16).build()?;
    /// let store = MemcachedStore::with_pool(pool);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "memcache")))]
    pub fn with_pool(pool: MemcachePool) -> Self {
        Self::plain(pool, PlainConfig::default())
    }

    /// [`with_pool`](Self::with_pool) with a configuration.
    ///
    /// # Errors
    /// If the prefix is not valid.
    #[cfg_attr(docsrs, doc(cfg(feature = "memcache")))]
    pub fn with_pool_and(pool: MemcachePool, config: PlainConfig) -> Result<Self, StoreError> {
        config.check()?;
        Ok(Self::plain(pool, config))
    }

    fn plain(pool: MemcachePool, config: PlainConfig) -> Self {
        Self { space: Space::on(Connections::Plain(Plain::new(pool)), config.into_memcached()) }
    }
}
