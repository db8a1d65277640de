//! The ways to open a store in a test: with its own client, or on what the program already has.
#![allow(dead_code)] // each test and benchmark uses a part of it

use std::error::Error;

#[cfg(feature = "deadpool")]
use deadpool_redis::Runtime;
use ratelimit_redis::{RedisConfig, RedisStore};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::{AsyncConnectionConfig, Client};

type BoxError = Box<dyn Error + Send + Sync>;

/// What a store is opened on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The store's own client.
    Own,
    /// A [`MultiplexedConnection`].
    Connection,
    /// A [`ConnectionManager`].
    Manager,
    /// A `ClusterConnection` that sends each call once.
    ClusterConnection,
    /// A `deadpool_redis::Pool`.
    #[cfg(feature = "deadpool")]
    Pool,
    /// A `deadpool_redis::cluster::Pool`.
    #[cfg(feature = "deadpool")]
    ClusterPool,
    /// A `deadpool_redis::sentinel::Pool`.
    #[cfg(feature = "deadpool")]
    SentinelPool,
}

impl Way {
    /// Opens a store. Connections and pools of the program have no time limits of their own. `urls` are the servers of the
    /// configuration, one address each.
    pub(crate) async fn open(self, config: &RedisConfig, urls: &[String]) -> Result<RedisStore, BoxError> {
        let (urls, url) = (urls.to_vec(), urls.first().ok_or("no address")?.clone());
        Ok(match self {
            Self::Own => RedisStore::connect_with(config.clone()).await?,
            Self::Connection => {
                RedisStore::with_connection(connection(Client::open(url)?).await?, config.clone())?
            }
            Self::Manager => RedisStore::with_connection(manager(&url).await?, config.clone())?,
            Self::ClusterConnection => {
                let client = ClusterClientBuilder::new(urls).retries(0).build()?;
                RedisStore::with_cluster_connection(client.get_async_connection().await?, config.clone())?
            }
            #[cfg(feature = "deadpool")]
            Self::Pool => RedisStore::with_pool(pool(&url, 16)?, config.clone())?,
            #[cfg(feature = "deadpool")]
            Self::ClusterPool => {
                let mut nodes = deadpool_redis::cluster::Config::from_urls(urls);
                nodes.pool = Some(deadpool_redis::PoolConfig::new(16));
                RedisStore::with_cluster_pool(nodes.create_pool(Some(Runtime::Tokio1))?, config.clone())?
            }
            #[cfg(feature = "deadpool")]
            Self::SentinelPool => RedisStore::with_pool(sentinel_pool(&url)?, config.clone())?,
        })
    }
}

pub(crate) async fn connection(client: Client) -> Result<MultiplexedConnection, BoxError> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

pub(crate) async fn manager(url: &str) -> Result<ConnectionManager, BoxError> {
    let config = ConnectionManagerConfig::new().set_response_timeout(None).set_connection_timeout(None);
    Ok(ConnectionManager::new_with_config(Client::open(url)?, config).await?)
}

#[cfg(feature = "deadpool")]
pub(crate) fn pool(url: &str, size: usize) -> Result<deadpool_redis::Pool, BoxError> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let manager = deadpool_redis::Manager::new_with_config(url, config)?;
    Ok(deadpool_redis::Pool::builder(manager).max_size(size).runtime(Runtime::Tokio1).build()?)
}

/// A pool of connections to the primary in an address like `redis+sentinel://:password@host:port,host:port/name`.
#[cfg(feature = "deadpool")]
fn sentinel_pool(url: &str) -> Result<deadpool_redis::sentinel::Pool, BoxError> {
    use deadpool_redis::sentinel::{Config, SentinelNodeConnectionInfo, SentinelServerType};

    let (_, address) = url.split_once("://").ok_or("an address without a scheme")?;
    let (log_in, address) = address.rsplit_once('@').unwrap_or(("", address));
    let (sentinels, name) = address.split_once('/').ok_or("an address without a name")?;
    let urls: Vec<String> = sentinels.split(',').map(|at| format!("redis://{at}/")).collect();
    let password = log_in.split_once(':').map(|(_, password)| password.to_owned());
    let node = deadpool_redis::RedisConnectionInfo { password, ..Default::default() };
    let node = SentinelNodeConnectionInfo { tls_mode: None, redis_connection_info: Some(node) };
    let mut config = Config::from_urls(urls, name.to_owned(), SentinelServerType::Master);
    config.node_connection_info = Some(node);
    config.pool = Some(deadpool_redis::PoolConfig::new(16));
    Ok(config.create_pool(Some(Runtime::Tokio1))?)
}
