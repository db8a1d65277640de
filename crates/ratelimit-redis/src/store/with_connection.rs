//! Stores on a connection that the program already has.

use ratelimit_core::StoreError;
use redis::Cmd;
use redis::aio::ConnectionLike;
use tokio::time::Instant;

use crate::config::RedisConfig;
use crate::servers::link::Link;
use crate::servers::provided::{Provided, Sent, Source, request};
use crate::store::RedisStore;

/// A connection that is cloned for each call.
struct Shared<C>(C);

impl<C: ConnectionLike + Clone + Send + Sync> Source for Shared<C> {
    fn send<'a>(&'a self, cmd: &'a Cmd, deadline: Instant) -> Sent<'a> {
        let mut connection = self.0.clone();
        Box::pin(async move { request(&mut connection, cmd, deadline).await })
    }
}

impl RedisStore {
    /// A store on your own connection to one server. The servers of `config` are not used.
    ///
    /// Takes a [`MultiplexedConnection`](redis::aio::MultiplexedConnection), a `redis::aio::ConnectionManager` or any other
    /// connection of the `redis` crate 1.x whose clones share it. Nothing is sent before the first call.
    ///
    /// - A `ConnectionManager` reconnects. A plain `MultiplexedConnection` does not: once it is broken, every call is an
    ///   error.
    /// - Neither sends a call twice.
    /// - A call ends at [`RedisConfig::timeout`] or at the connection's own `response_timeout` (500 ms by default),
    ///   whichever comes first.
    /// - A broken connection and a call without a reply are [maybe charged](ratelimit_core::store::Applied::Unknown), because the
    ///   store cannot see what was written.
    ///
    /// For a cluster use [`with_cluster_connection`](Self::with_cluster_connection). A connection to a cluster that is
    /// passed to this function works only as long as all keys of a call are in one slot; otherwise the call is an error
    /// ([`ErrorKind::Unsupported`](ratelimit_core::ErrorKind::Unsupported)). Under load, a call contains the keys of
    /// several checks ([`RedisConfig::batch`]).
    ///
    /// ```no_run
    /// use ratelimit_redis::{Limit, RateLimiter, RedisConfig, RedisStore};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let store = RedisStore::with_connection(connection.clone(), RedisConfig::default())?;
    /// let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if the prefix contains `{}`.
    pub fn with_connection(
        connection: impl ConnectionLike + Clone + Send + Sync + 'static,
        config: RedisConfig,
    ) -> Result<Self, StoreError> {
        Self::on(Link::Provided(Provided::single(Shared(connection), "the given connection")), config)
    }

    /// A store on your own connection to a cluster, a `redis::cluster_async::ClusterConnection`. The servers of `config` are
    /// not used.
    ///
    /// Its decisions are those of a store that [connects](Self::connect) to a cluster: exact for all limits of one key.
    ///
    /// # Set `retries(0)`
    /// By default a `ClusterConnection` sends a call again up to 16 times, even if the connection broke after the server
    /// had executed it. A check is then charged twice, which admits less than the limit; but a refund is given back twice,
    /// which admits up to its cost too much. With `retries(0)` it sends each call once. The store retries the calls that a
    /// node has refused because another node serves the slot.
    ///
    /// If you must keep the retries, do not set `overall_response_timeout` longer than `response_timeout`; otherwise a call
    /// that timed out is sent again as well. Every error that the connection returns counts as [maybe
    /// charged](ratelimit_core::store::Applied::Unknown), because the store cannot see what the client sent before.
    ///
    /// ```no_run
    /// use ratelimit_redis::{RedisConfig, RedisStore};
    /// use redis::cluster::ClusterClientBuilder;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = ClusterClientBuilder::new(["redis://10.0.0.1/", "redis://10.0.0.2/"]).retries(0).build()?;
    /// let connection = client.get_async_connection().await?;
    /// let store = RedisStore::with_cluster_connection(connection, RedisConfig::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if the prefix contains `{}`.
    pub fn with_cluster_connection(
        connection: impl ConnectionLike + Clone + Send + Sync + 'static,
        config: RedisConfig,
    ) -> Result<Self, StoreError> {
        Self::on(
            Link::Provided(Provided::cluster(Shared(connection), "the given cluster connection")),
            config,
        )
    }
}
