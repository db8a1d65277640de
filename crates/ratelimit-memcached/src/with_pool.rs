//! Stores on a pool that the program already has.

use ratelimit_core::StoreError;

use crate::check;
use crate::config::MemcachedConfig;
use crate::plain::{MemcachePool, Plain};
use crate::space::Space;
use crate::store::MemcachedStore;
use crate::trip::Connections;

impl MemcachedStore {
    /// A store that sends only the plain text protocol, over the connections of this pool: for a proxy (twemproxy; mcrouter
    /// is not tested), and for servers without meta commands.
    ///
    /// Of the configuration it uses the prefix, the timeout, the clock slack and the maximum size of an item. Servers and
    /// connections belong to the pool. It connects on its first call.
    ///
    /// ```
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratelimit_memcached::{MemcacheManager, MemcachePool, MemcachedConfig, MemcachedStore};
    ///
    /// let manager = MemcacheManager::new("memcached://127.0.0.1:22121")?;
    /// let pool = MemcachePool::builder(manager).max_size(16).build()?;
    /// let store = MemcachedStore::with_pool(pool, MemcachedConfig::default().prefix("limits"))?;
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    ///
    /// # Errors
    /// If the prefix is not valid.
    #[cfg_attr(docsrs, doc(cfg(feature = "memcache")))]
    pub fn with_pool(pool: MemcachePool, config: MemcachedConfig) -> Result<Self, StoreError> {
        check::prefix(&config)?;
        Ok(Self { space: Space::on(Connections::Plain(Plain::new(pool)), config) })
    }
}
