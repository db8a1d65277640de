//! Opens the store, and lists its meters if it can.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use ratelimit_core::StoreError;
use ratelimit_core::kit::MeterScan;
use ratelimit_core::store::MeterId;
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_redis::RedisStore;
use ratelimit_stores::Store;

/// An open store: one that can list its meters, or another.
pub(crate) enum Opened {
    Redis(RedisStore),
    Postgres(PostgresStore),
    /// Memcached, whose servers have no command that lists some of their items.
    Other(Store),
}

const MEMORY: &str = "the counts of a `memory:` store are in the memory of the program that limits, where no other process \
    can see them: give the address of a store that the program shares, redis://, postgres:// or memcached://, or let the \
    program itself look with RateLimiter::peek";

const NO_LIST: &str = "this store cannot list its keys, because its server has no command for that: name them, \
    as in `peek KEY`; stores on Redis and PostgreSQL can list";

impl Opened {
    /// Opens the store at this address. Nothing is created in it.
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
        match scheme {
            "memory" => bail!(MEMORY),
            "postgres" | "postgresql" => {
                // The tables are those of the program, which may be of another version.
                let config = PostgresConfig::from_url(url)?.migrate(false).prune_every(None).connections(1);
                Ok(Self::Postgres(PostgresStore::connect_with(config).await?))
            }
            _ if scheme.starts_with("redis") || scheme.starts_with("valkey") || scheme == "unix" => {
                Ok(Self::Redis(RedisStore::connect(url).await?))
            }
            _ if scheme.starts_with("memcache") => Ok(Self::Other(ratelimit_stores::connect(url).await?)),
            _ => bail!(
                "--store is not the address of a store: it begins with redis://, redis+cluster://, redis+sentinel://, \
                 postgres:// or memcached://"
            ),
        }
    }

    /// The store.
    pub(crate) fn store(&self) -> Store {
        match self {
            Self::Redis(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
            Self::Other(store) => store.clone(),
        }
    }

    /// Calls `visit` with the meters of a namespace; stops after `most` names.
    pub(crate) async fn scan(
        &self,
        namespace: &str,
        most: usize,
        visit: impl FnMut(&MeterId<'_>) + Send,
    ) -> anyhow::Result<MeterScan> {
        match self {
            Self::Redis(store) => Ok(store.scan_meters(namespace, most, visit).await?),
            Self::Postgres(store) => Ok(store.scan_meters(namespace, most, visit).await?),
            Self::Other(_) => bail!(NO_LIST),
        }
    }
    /// Calls `visit` with the meters of a key in all namespaces; stops after `most` names and after this time. `None` if the
    /// store cannot search.
    pub(crate) async fn meters_of(
        &self,
        key: &[u8],
        most: usize,
        within: Duration,
        visit: impl FnMut(&MeterId<'_>) + Send,
    ) -> Result<Option<MeterScan>, StoreError> {
        match self {
            Self::Redis(store) => store.meters_of(key, most, within, visit).await.map(Some),
            Self::Postgres(store) => store.meters_of(key, most, within, visit).await.map(Some),
            Self::Other(_) => Ok(None),
        }
    }
}
