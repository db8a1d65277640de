//! Stores on a pool that the program already has.

use ratelimit_core::StoreError;

use crate::check;
use crate::config::MemcachedConfig;
use crate::plain::{MemcachePool, Plain, PlainConfig};
use crate::space::Space;
use crate::store::MemcachedStore;
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
        Self::plain(pool, PlainConfig::default().into_memcached())
    }

    /// [`with_pool`](Self::with_pool) with a configuration.
    ///
    /// # Errors
    /// If the prefix is not valid.
    #[cfg_attr(docsrs, doc(cfg(feature = "memcache")))]
    pub fn with_pool_and(pool: MemcachePool, config: PlainConfig) -> Result<Self, StoreError> {
        let config = config.into_memcached();
        check::addresses(&config)?;
        Ok(Self::plain(pool, config))
    }

    fn plain(pool: MemcachePool, config: MemcachedConfig) -> Self {
        Self { space: Space::on(Connections::Plain(Plain::new(pool)), config) }
    }
}
