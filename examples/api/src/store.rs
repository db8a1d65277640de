//! The store that the command line names.

use std::sync::Arc;

use anyhow::bail;
use ratelimit_core::DynCounterStore;
use ratelimit_memory::MemoryStore;
use ratelimit_redis::RedisStore;

/// A store that is chosen when the program starts.
pub(crate) type Store = Arc<dyn DynCounterStore>;

/// Opens the store at `url`.
pub(crate) async fn open(url: &str) -> anyhow::Result<Store> {
    match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
        "memory" => Ok(Arc::new(MemoryStore::new())),
        "redis" | "rediss" | "redis+unix" | "unix" => Ok(Arc::new(RedisStore::connect(url).await?)),
        other => bail!("no store is called {other:?}: use memory: or redis://host:port"),
    }
}
