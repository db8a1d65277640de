//! The store.

pub(crate) mod prune;
pub(crate) mod scan;

use std::fmt;
use std::sync::Arc;

use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use sqlx::postgres::PgPool;

use crate::config::PostgresConfig;
use crate::decide::queue::Queue;
use crate::error;
use crate::servers::link::{Link, Migrates};
use crate::store::prune::{Pruner, prune};
use crate::wire::call::{Argument, Call};
use crate::wire::claims::{name_of, owned};
use crate::wire::codec::refund_call;
use crate::wire::schema::Function;

/// Counts on a PostgreSQL server. Clones share the connections.
///
/// ```no_run
/// use ratelimit_postgres::{PostgresConfig, PostgresStore, Time};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = PostgresConfig::from_url("postgres://app:secret@db.internal/app")?.time(Time::Server);
/// let store = PostgresStore::connect_with(config).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    queue: Arc<Queue>,
    _pruner: Option<Pruner>,
}

impl PostgresStore {
    /// Connects to the server at `url`, and [migrates](Self::migrate) unless its option `migrate` is `false`; see
    /// [`PostgresConfig::from_url`].
    ///
    /// # Errors
    /// If the address is not valid, if the server does not answer, or if it refuses the log-in or the migration.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(PostgresConfig::from_url(url)?).await
    }

    /// Connects with a configuration, and [migrates](Self::migrate) unless [`migrate`](PostgresConfig::migrate) is off.
    ///
    /// # Errors
    /// The same as [`connect`](Self::connect), or if the schema or the prefix is not a valid name.
    pub async fn connect_with(config: PostgresConfig) -> Result<Self, StoreError> {
        let link = Link::new(config, None, Migrates::WhenCalled)?;
        link.connect(link.deadline()).await?;
        if link.config().migrate {
            link.migrate().await?;
        }
        Ok(Self::on(link))
    }

    /// A store that connects on its first call: for a program that must be able to start while the server is down. At its
    /// first connection it [migrates](Self::migrate), unless [`migrate`](PostgresConfig::migrate) is off.
    ///
    /// The calls until then wait for the migration, at most for their time limit. If it fails, so do they, and a later call
    /// tries again.
    ///
    /// Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the schema or the prefix is not a valid name.
    pub fn lazy(config: PostgresConfig) -> Result<Self, StoreError> {
        let migrates = if config.migrate { Migrates::First } else { Migrates::WhenCalled };
        Ok(Self::on(Link::new(config, None, migrates)?))
    }

    /// A store on your own pool. It does not [migrate](Self::migrate). The configuration's server is not used, and its
    /// [`connections`](PostgresConfig::connections) is the maximum number taken from the pool at a time.
    ///
    /// The pool's own settings apply:
    ///
    /// - Turn its `test_before_acquire` off, or every call costs another round trip.
    /// - Set a `lock_timeout`.
    /// - Leave the transaction isolation at `READ COMMITTED`.
    /// - With a PgBouncer in front of the server, in any mode, turn off `extra_float_digits`, which sqlx sets by default
    ///   and PgBouncer refuses.
    ///
    /// ```no_run
    /// use ratelimit_postgres::{PostgresConfig, PostgresStore};
    /// use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server: PgConnectOptions = "postgres://app:secret@pgbouncer.internal:6432/app".parse()?;
    /// let pool = PgPoolOptions::new()
    ///     .test_before_acquire(false)
    ///     .connect_with(server.extra_float_digits(None).application_name("shop"))
    ///     .await?;
    /// let store = PostgresStore::with_pool(pool, PostgresConfig::default())?;
    /// store.migrate().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the schema or the prefix is not a valid name.
    pub fn with_pool(pool: PgPool, config: PostgresConfig) -> Result<Self, StoreError> {
        Ok(Self::on(Link::new(config, Some(pool), Migrates::WhenCalled)?))
    }

    fn on(link: Arc<Link>) -> Self {
        let every = link.config().prune_every.filter(|every| !every.is_zero());
        let pruner = every.map(|every| Pruner::start(&link, every));
        Self(Arc::new(Inner { queue: Arc::new(Queue::new(link.clone())), link, _pruner: pruner }))
    }

    /// Creates the table and the functions in one transaction, unless this version of them or a newer one exists. Several
    /// processes may do it concurrently, and others may count meanwhile. See [`PostgresConfig::migration`] for the SQL.
    ///
    /// The user must own the schema or be allowed to create one; counting needs fewer privileges. The time limit is 60 s,
    /// not [`timeout`](PostgresConfig::timeout).
    ///
    /// # Errors
    /// If the server does not answer or refuses, or if a lock cannot be had soon.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.0.link.migrate().await
    }

    /// Deletes expired meters and returns their number.
    ///
    /// Scans the table in small steps of milliseconds each, skipping rows that are in use.
    /// [`timeout`](PostgresConfig::timeout) applies to each step. The store does this regularly in the background
    /// ([`PostgresConfig::prune_every`]).
    ///
    /// # Errors
    /// If the server does not answer, or if the migration is missing.
    pub async fn prune(&self) -> Result<u64, StoreError> {
        prune(&self.0.link).await
    }

    /// The connections, for operations that are not decisions, such as scans.
    pub(crate) fn link(&self) -> &Link {
        &self.0.link
    }

    /// Runs in its own task: if the caller drops the future, the statement still runs to its end and the connection stays
    /// usable. A `RunToEnd` would keep the connection from others while the caller does not poll it.
    async fn call(&self, call: Call) -> Result<Vec<i64>, StoreError> {
        let link = self.0.link.clone();
        let deadline = link.deadline();
        let result = tokio::spawn(async move { link.run(&call, deadline).await }).await;
        let (numbers,) = result.unwrap_or_else(|_| Err(error::strange_reply()))?;
        Ok(numbers)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("address", &self.0.link.address())
            .field("config", self.0.link.config())
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl CounterStore for PostgresStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, self.0.link.config().time)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answers = self.0.queue.claim(vec![owned(&claims)]).await?;
        let answer = answers.pop().unwrap_or_else(|| Err(error::strange_reply()));
        answer.map_err(|failure| failure.at(self.0.link.address()))
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        if slices.is_empty() {
            return Vec::new();
        }
        let address = self.0.link.address();
        match self.0.queue.claim(slices.iter().map(owned).collect()).await {
            Ok(answers) => {
                let outward = |failure: StoreError| failure.at(address);
                answers.into_iter().map(|answer| answer.map_err(outward)).collect()
            }
            Err(failure) => slices.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        if refunds.is_empty() {
            return Ok(());
        }
        let reply = self.call(refund_call(now, refunds, self.0.link.config())).await?;
        if reply.is_empty() {
            return Ok(());
        }
        Err(error::corrupt().at(self.0.link.address()))
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let ids = claims.iter().map(|claim| name_of(&claim.id)).collect();
        self.call(Call::new(Function::Reset, [Argument::BytesList(ids)])).await.map(drop)
    }
}
