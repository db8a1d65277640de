//! The store.

#[cfg(feature = "deadpool")]
pub(crate) mod pool;
pub(crate) mod scan;
pub(crate) mod with_connection;

use std::fmt;
use std::sync::Arc;

use ratelimit_core::layers::Batched;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};

use crate::config::RedisConfig;
use crate::decide::by_node::ByNode;
use crate::decide::calls::Calls;
use crate::error::ERRORS;
use crate::servers::link::Link;

/// Counts on Redis or Valkey: on one server, on a cluster, or on the primary that sentinels watch.
///
/// A slice of claims is one script call. So is a batch of up to 256 slices
/// ([`check_many`](ratelimit_core::RateLimiter::check_many)), on a cluster up to 256 for each slot. Under load, concurrent
/// checks share calls ([`RedisConfig::batch`]). No call takes longer than [`RedisConfig::timeout`]. A connection that
/// breaks or stops answering is replaced by the next call.
///
/// Cloning is cheap; clones share the connections. The store needs a tokio runtime.
///
/// # Clusters
///
/// A slice whose keys are in several slots may be refused under contention although it would have fitted, and takes a
/// second round trip if it fits. All limits of one key are in one slot. See
/// [`Decisions::ExactPerKey`](ratelimit_core::store::Decisions::ExactPerKey).
///
/// # Sentinels
///
/// The store follows the primary after a failover. Decisions are exact on each primary. Replication is asynchronous:
/// charges that the new primary had not received are lost.
#[derive(Clone)]
pub struct RedisStore {
    calls: Calls,
    sharing: Sharing,
}

/// What concurrent checks share.
#[derive(Clone)]
enum Sharing {
    /// Nothing: it is off, or the store uses a connection of the program to a cluster.
    Nothing,
    /// Calls, on one server.
    Calls(Batched<Calls>),
    /// Round trips to each node of a cluster.
    RoundTrips(Arc<ByNode>),
}

impl RedisStore {
    /// Connects to one server (`redis://host`), a cluster (`redis+cluster://node-1,node-2`), or the primary that sentinels
    /// watch (`redis+sentinel://host-1,host-2/name`). [`RedisConfig::from_url`] lists addresses and options.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratelimit_redis::RedisStore;
    ///
    /// let store = RedisStore::connect("redis+cluster://:secret@node-1:6379,node-2:6379?timeout=100ms").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if the address, an option or a certificate is
    /// not valid. The errors of a call if there is no connection within the time limit, if the server refuses the log-in,
    /// or if the sentinels watch no primary of that name.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(RedisConfig::from_url(url)?).await
    }

    /// Connects with a configuration.
    ///
    /// # Errors
    /// The same as [`connect`](Self::connect).
    pub async fn connect_with(config: RedisConfig) -> Result<Self, StoreError> {
        let store = Self::lazy(config)?;
        store.calls.link.connect(store.calls.deadline()).await?;
        Ok(store)
    }

    /// A store that connects on its first call: for a program that must be able to start while the servers are down.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if the prefix contains `{}`. With TLS, if the
    /// certificates or the private key are not valid, or if there is no authority to trust. Without TLS, if any of them is
    /// set.
    pub fn lazy(config: RedisConfig) -> Result<Self, StoreError> {
        Self::on(Link::new(&config)?, config)
    }

    /// The calls, for operations that are not decisions, such as scans.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Adds this store's name and address, which errors of `Batched` (a caller timed out while it waited) do not have.
    fn named(&self, error: StoreError) -> StoreError {
        error.of_store(ERRORS.store()).at(self.calls.link.address())
    }

    /// A store on this link.
    pub(crate) fn on(link: Link, config: RedisConfig) -> Result<Self, StoreError> {
        if config.prefix.contains("{}") {
            // Redis hashes the whole key then, so the limits of one key would be in several slots.
            return Err(ERRORS.misconfigured("the prefix must not contain `{}`"));
        }
        let batch = config.batch.map(|batch| batch.timeout(config.timeout));
        let calls = Calls::new(link, config);
        let sharing = match batch {
            // A call shared by all nodes would wait for the slowest of them.
            Some(batch) if calls.link.cluster().is_some() => {
                Sharing::RoundTrips(Arc::new(ByNode::new(calls.clone(), batch)))
            }
            // A connection of the program to a cluster may send a call to any node.
            Some(batch) if !calls.link.has_slots() => {
                Sharing::Calls(Batched::with_config(calls.clone(), batch))
            }
            _ => Sharing::Nothing,
        };
        Ok(Self { calls, sharing })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.calls.link.address())
            .field("prefix", &self.calls.prefix)
            .field("time", &self.calls.time)
            .finish_non_exhaustive()
    }
}

impl CounterStore for RedisStore {
    fn promises(&self) -> Promises {
        self.calls.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        match &self.sharing {
            Sharing::Nothing => self.calls.claim(claims).await,
            Sharing::Calls(batched) => batched.claim(claims).await.map_err(|error| self.named(error)),
            Sharing::RoundTrips(by_node) => by_node.claim(claims).await.map_err(|error| self.named(error)),
        }
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.calls.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.calls.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.calls.reset(claims).await
    }
}
