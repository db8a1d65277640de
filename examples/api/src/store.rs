//! The store that the command line names.

use std::sync::Arc;

use anyhow::bail;
use ratelimit_core::DynCounterStore;
use ratelimit_memcached::MemcachedStore;
use ratelimit_memory::MemoryStore;
use ratelimit_postgres::PostgresStore;
use ratelimit_redis::RedisStore;

/// A store that is chosen when the program starts.
pub(crate) type Store = Arc<dyn DynCounterStore>;

/// Opens the store at `url`.
pub(crate) async fn open(url: &str) -> anyhow::Result<Store> {
    match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
        "memory" => Ok(Arc::new(MemoryStore::new())),
        "redis" | "rediss" | "redis+unix" | "unix" => Ok(Arc::new(RedisStore::connect(url).await?)),
        "memcached" => Ok(Arc::new(MemcachedStore::connect(url).await?)),
        "postgres" | "postgresql" => {
            let store = PostgresStore::connect(url).await?;
            store.migrate().await?;
            Ok(Arc::new(store))
        }
        other => bail!(
            "no store is called {other:?}: use memory:, redis://host:port, memcached://host:port or \
             postgres://user@host:port/database"
        ),
    }
}
