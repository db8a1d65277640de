//! Connections to the server, and single statements on them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use ratelimit_core::{ErrorKind, StoreError};
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{AssertSqlSafe, FromRow, Row as _};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::config::{PostgresConfig, address_of};
use crate::error::{self, ERRORS};
use crate::servers::first_migration::FirstMigration;
use crate::servers::source::{ActiveConnection, Source};
use crate::wire::call::Call;
use crate::wire::schema::Names;

/// How often a statement is tried that the server rolls back because of concurrent ones.
const TRIES: usize = 4;

/// The maximum duration of a migration.
const MIGRATION: Duration = Duration::from_secs(60);

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Link {
    config: PostgresConfig,
    names: Names,
    address: String,
    source: Source,
    connections: usize,
    permits: Semaphore,
    first_migration: FirstMigration,
    /// Itself, for the task of the first migration.
    itself: Weak<Self>,
}

/// When the store migrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migrates {
    /// When [`Link::migrate`] is called.
    WhenCalled,
    /// At its first connection.
    First,
}

impl Link {
    /// A link to the server of the configuration, or over the connections of `pool`.
    pub(crate) fn new(
        config: PostgresConfig,
        pool: Option<PgPool>,
        migrates: Migrates,
    ) -> Result<Arc<Self>, StoreError> {
        let names = Names::new(&config)?;
        let (address, most, source) = match pool {
            Some(pool) => {
                let most = pool.options().get_max_connections();
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                (address_of(&pool.connect_options()), most, Source::pool(pool))
            }
            None => (address_of(&config.server), usize::MAX, Source::own_connections(&config)),
        };
        let connections = config.connections.min(most).max(1);
        Ok(Arc::new_cyclic(|itself| Self {
            config,
            names,
            address,
            source,
            connections,
            permits: Semaphore::new(connections),
            first_migration: FirstMigration::new(migrates == Migrates::First),
            itself: itself.clone(),
        }))
    }

    /// The maximum number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    pub(crate) fn config(&self) -> &PostgresConfig {
        &self.config
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        deadline_after(self.config.timeout)
    }

    /// Ensures that there is a connection for the next call.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        self.acquire(deadline).await.map(|(_permit, active)| self.source.give_back(active))
    }

    /// The same, except that on a pool it does nothing, to save a round trip. At the first connection it also migrates, if the
    /// store has to.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<(), StoreError> {
        if self.source.is_pool() {
            return Ok(());
        }
        self.connect(deadline).await?;
        if self.first_migration.is_owed() { self.migrate_first(deadline).await } else { Ok(()) }
    }

    #[cold]
    async fn migrate_first(&self, deadline: Instant) -> Result<(), StoreError> {
        let migrate = || {
            let itself = self.itself.clone();
            async move {
                match itself.upgrade() {
                    Some(link) => link.migrate().await,
                    None => Ok(()), // nobody waits for it
                }
            }
        };
        self.first_migration.done(migrate, deadline).await.map_err(|failure| failure.at(&self.address))
    }

    /// Calls a function, again if the server rolled it back because of concurrent statements.
    pub(crate) async fn run<R>(&self, call: &Call, deadline: Instant) -> Result<R, StoreError>
    where
        R: for<'r> FromRow<'r, PgRow>,
    {
        if self.first_migration.is_owed() {
            self.ready(deadline).await?;
        }
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.run_once(call, deadline).await? {
                Err(error) if error::is_conflict(&error) && tries > 0 => {}
                result => {
                    return result.map_err(|error| {
                        let half = call.may_be_half_done(&error);
                        let failure = error::calling(error).at(&self.address);
                        if half { failure.maybe_applied() } else { failure }
                    });
                }
            }
        }
    }

    async fn run_once<R>(&self, call: &Call, deadline: Instant) -> Result<Result<R, sqlx::Error>, StoreError>
    where
        R: for<'r> FromRow<'r, PgRow>,
    {
        let (_permit, mut active) = self.acquire(deadline).await?;
        let sent_at = Instant::now();
        let sending = async {
            R::from_row(&call.send(active.connection(), &self.names, self.source.is_pooled()).await?)
        };
        let result = timeout_at(deadline, sending).await;
        match &result {
            Ok(Ok(_)) => self.source.give_back(active),
            Ok(Err(error)) if error::keeps_connection(error) => self.source.give_back(active),
            // After a long wait for a connection, the time may just have been too short for the answer.
            Err(_) if sent_at.elapsed() < self.config.timeout / 2 => self.source.hang_up(active),
            Ok(Err(_)) | Err(_) => {
                self.source.hang_up(active);
                // The idle connections are probably broken as well.
                self.source.forget();
            }
        }
        result.map_err(|_| ERRORS.late().at(&self.address))
    }

    async fn acquire(
        &self,
        deadline: Instant,
    ) -> Result<(SemaphorePermit<'_>, ActiveConnection), StoreError> {
        let late = |message| ERRORS.of(ErrorKind::Timeout, message).at(&self.address);
        let permit = match timeout_at(deadline, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit,
            _ => return Err(late("all connections were busy until the time limit")),
        };
        match timeout_at(deadline, self.source.open(&self.names)).await {
            Ok(Ok(active)) => Ok((permit, active)),
            Ok(Err(error)) => Err(error::connecting(error).at(&self.address)),
            Err(_) => Err(ERRORS.no_connection().at(&self.address)),
        }
    }

    /// Creates the table and the functions unless they exist in this version or a newer one.
    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let migration = async {
            let mut active = self.source.open_bare().await.map_err(error::connecting)?;
            let done = self.migrate_on(active.connection()).await;
            if done.is_err() {
                self.source.hang_up(active);
            }
            done.map_err(error::migrating)
        };
        let late = || ERRORS.of(ErrorKind::Timeout, "the migration took too long");
        let done = tokio::time::timeout(MIGRATION, migration).await.unwrap_or_else(|_| Err(late()));
        done.map_err(|failure| failure.at(&self.address))?;
        // Existing connections do not have the statements prepared.
        self.source.forget();
        self.connect(self.deadline()).await
    }

    async fn migrate_on(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let check = sqlx::raw_sql(AssertSqlSafe(self.names.check()));
        if check.fetch_one(&mut *connection).await?.try_get(0)? {
            return Ok(());
        }
        // Several statements in one request form one transaction.
        let script = sqlx::raw_sql(AssertSqlSafe(self.names.migration(self.config.logged)));
        match script.execute(connection).await {
            // A newer program has migrated since the check.
            Err(error) if !error::is_newer(&error) => Err(error),
            _ => Ok(()),
        }
    }
}
