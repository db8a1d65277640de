//! Stores on a pool that the program already has.

use std::ops::DerefMut;

use deadpool::managed::{Manager, Object, Pool, PoolError};
use ratelimit_core::{ErrorKind, StoreError};
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, ServerErrorKind};
use tokio::time::{Instant, timeout_at};

use crate::config::RedisConfig;
use crate::error::{self, ERRORS};
use crate::servers::link::Link;
use crate::servers::provided::{Provided, Sent, Source, request};
use crate::store::RedisStore;

/// A pool that lends a connection for each call.
struct PoolSource<M: Manager, W: From<Object<M>>>(Pool<M, W>);

impl<M, W> Source for PoolSource<M, W>
where
    M: Manager<Type: ConnectionLike, Error = RedisError>,
    W: From<Object<M>> + DerefMut<Target = M::Type> + Send,
{
    fn send<'a>(&'a self, cmd: &'a Cmd, deadline: Instant) -> Sent<'a> {
        Box::pin(async move {
            let mut connection = match timeout_at(deadline, self.0.get()).await {
                Ok(connection) => connection.map_err(refused)?,
                Err(_) => return Err(late()),
            };
            let reply = request(&mut *connection, cmd, deadline).await;
            drop(connection);
            if let Ok(Err(error)) = &reply
                && error.kind() == ServerErrorKind::ReadOnly.into()
            {
                // The server has become a replica. What the pool connects anew leads to the primary, if the address does.
                self.0.retain(|_, _| false);
            }
            reply
        })
    }
}

/// The pool gave no connection in time, so nothing has been sent.
fn late() -> StoreError {
    ERRORS.of(ErrorKind::Unreachable, "the pool gave no connection within the time limit")
}

fn late_by_its_own() -> StoreError {
    ERRORS.of(ErrorKind::Unreachable, "the pool gave no connection within its own time limits")
}

/// Why the pool gave no connection. Nothing has been sent.
fn refused(error: PoolError<RedisError>) -> StoreError {
    match error {
        PoolError::Timeout(_) => late_by_its_own(),
        PoolError::Backend(error) if error.is_timeout() => late_by_its_own(),
        PoolError::Backend(error) => error::from_redis(error).not_applied(),
        PoolError::Closed => ERRORS.pool_closed(),
        PoolError::NoRuntimeSpecified => ERRORS.of(
            ErrorKind::Unsupported,
            "the pool has time limits but no runtime; build it with `Runtime::Tokio1`",
        ),
        PoolError::PostCreateHook(_) => {
            ERRORS.of(ErrorKind::Unreachable, "a `post_create` hook of the pool refused the connection")
        }
    }
}

impl RedisStore {
    /// A store on your own pool of connections to one server: a `deadpool_redis::Pool`, a
    /// `deadpool_redis::sentinel::Pool`, or a deadpool with your own manager. The servers of `config` are not used.
    ///
    /// Each call holds a connection until it ends. Waiting for the connection counts against [`RedisConfig::timeout`]; if
    /// that expires first, nothing has been charged. Afterwards, as with any connection of yours, a call without a reply is
    /// [maybe charged](ratelimit_core::store::Applied::Unknown). No call is sent twice.
    ///
    /// `deadpool-redis` sends a `PING` each time it lends a connection, so a check takes two round trips. Checks that share
    /// a call ([`RedisConfig::batch`]) share both.
    ///
    /// ```no_run
    /// use deadpool_redis::{Config, Runtime};
    /// use ratelimit_redis::{RedisConfig, RedisStore};
    ///
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Config::from_url("redis://127.0.0.1/").create_pool(Some(Runtime::Tokio1))?;
    /// let store = RedisStore::with_pool(pool.clone(), RedisConfig::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if the prefix contains `{}`.
    pub fn with_pool<M, W>(pool: Pool<M, W>, config: RedisConfig) -> Result<Self, StoreError>
    where
        M: Manager<Type: ConnectionLike, Error = RedisError> + 'static,
        W: From<Object<M>> + DerefMut<Target = M::Type> + Send + 'static,
    {
        Self::on(Link::Provided(Provided::single(PoolSource(pool), "the given pool")), config)
    }

    /// A store on your own pool of connections to a cluster: a `deadpool_redis::cluster::Pool`, or a deadpool with
    /// your own manager. The servers of `config` are not used.
    ///
    /// What [`with_cluster_connection`](Self::with_cluster_connection) says about retries applies here as well. The
    /// connections of a `deadpool_redis::cluster::Pool` retry 16 times, which cannot be changed: after a connection has
    /// broken, a check may have been charged twice, and a refund given back twice. Where that matters, share one
    /// `ClusterConnection` with `retries(0)`, or create such connections in your own manager.
    ///
    /// ```no_run
    /// use deadpool_redis::cluster::{Config, Runtime};
    /// use ratelimit_redis::{RedisConfig, RedisStore};
    ///
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = vec!["redis://10.0.0.1/".to_owned(), "redis://10.0.0.2/".to_owned()];
    /// let pool = Config::from_urls(nodes).create_pool(Some(Runtime::Tokio1))?;
    /// let store = RedisStore::with_cluster_pool(pool.clone(), RedisConfig::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if the prefix contains `{}`.
    pub fn with_cluster_pool<M, W>(pool: Pool<M, W>, config: RedisConfig) -> Result<Self, StoreError>
    where
        M: Manager<Type: ConnectionLike, Error = RedisError> + 'static,
        W: From<Object<M>> + DerefMut<Target = M::Type> + Send + 'static,
    {
        Self::on(Link::Provided(Provided::cluster(PoolSource(pool), "the given cluster pool")), config)
    }
}
