//! How a store reaches its server and writes there.

use std::fmt;
use std::time::Duration;

use ratelimit_core::{CLOCK_SLACK, ErrorKind, StoreError};
use sqlx::postgres::PgConnectOptions;

use crate::error::STORE;
use crate::schema::Names;

/// How a [`PostgresStore`](crate::PostgresStore) reaches its server and writes there.
///
/// ```
/// use ratelimit_postgres::{PostgresConfig, TimeSource};
/// use std::time::Duration;
///
/// let config = PostgresConfig {
///     timeout: Duration::from_millis(500),
///     time: TimeSource::Server,
///     ..PostgresConfig::from_url("postgres://app:secret@db.internal/app")?
/// };
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    /// Where the server is, and who logs in.
    pub server: PgConnectOptions,
    /// The schema of the table and the functions; made by the migration if it is not there.
    pub schema: String,
    /// What their names begin with: lower-case ASCII letters, digits and `_`, not first a digit, at most 32.
    pub prefix: String,
    /// Whether the table survives a crash of the server. Decided when it is made.
    pub logged: Logged,
    /// Whose time decides.
    pub time: TimeSource,
    /// How long a call may take, with everything that belongs to it: connecting, waiting for others, the answer.
    pub timeout: Duration,
    /// The most connections. Calls that find all of them busy are put into one statement.
    pub connections: usize,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind; at least
    /// [`CLOCK_SLACK`].
    pub clock_slack: Duration,
    /// How often forgotten meters are deleted in the background; `None` leaves it to
    /// [`PostgresStore::prune`](crate::PostgresStore::prune).
    pub prune_every: Option<Duration>,
}

/// Whether the table survives a crash of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Logged {
    /// It does not: faster, nothing is written ahead. After a crash, and after a failover to a standby, all meters start
    /// from zero.
    #[default]
    Unlogged,
    /// It does, and it is replicated; each charge then waits for the disk unless `synchronous_commit` is off.
    Logged,
}

/// Whose time decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeSource {
    /// The caller's: the limiter's clock. Processes that share the server should have their clocks synchronised.
    #[default]
    Caller,
    /// The server's, to the microsecond; the limiter's clock then plays no part.
    Server,
}

impl PostgresConfig {
    /// The defaults, for the server at `url`: `postgres://[user][:password@]host[:port][/database][?sslmode=…]`.
    ///
    /// # Errors
    /// If the address is none.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let server: PgConnectOptions = url.parse().map_err(|_| {
            // The error underneath may quote the address, and so the password.
            let message =
                "the address is not valid; it looks like postgres://user:password@host:5432/database";
            StoreError::new(STORE, ErrorKind::Unsupported, message)
        })?;
        Ok(Self { server, ..Self::default() })
    }

    /// The SQL that [`PostgresStore::migrate`](crate::PostgresStore::migrate) runs, for those who run their own migrations:
    /// one script of many statements. It may be run again.
    ///
    /// # Errors
    /// If the schema or the prefix cannot be the name of one.
    pub fn migration(&self) -> Result<String, StoreError> {
        Ok(Names::new(self, true)?.migration(self.logged))
    }

    /// The slack in microseconds, never below what a store owes.
    pub(crate) fn slack_micros(&self) -> i64 {
        // Longer than a century is as good as a century.
        const CENTURY: i64 = 3_155_760_000_000_000;
        i64::try_from(self.clock_slack.max(CLOCK_SLACK).as_micros()).unwrap_or(CENTURY).min(CENTURY)
    }
}

impl Default for PostgresConfig {
    /// The server that the environment names as for `psql` (`PGHOST`, …), schema `ratelimit`, no prefix, unlogged, the
    /// caller's time, 2 s, eight connections, 10 s of slack, pruned each minute.
    fn default() -> Self {
        Self {
            server: PgConnectOptions::new(),
            schema: "ratelimit".to_owned(),
            prefix: String::new(),
            logged: Logged::default(),
            time: TimeSource::default(),
            timeout: Duration::from_secs(2),
            connections: 8,
            clock_slack: Duration::from_secs(10),
            prune_every: Some(Duration::from_secs(60)),
        }
    }
}

impl fmt::Debug for PostgresConfig {
    /// Without the user and the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("server", &crate::link::address_of(&self.server))
            .field("schema", &self.schema)
            .field("prefix", &self.prefix)
            .field("logged", &self.logged)
            .field("time", &self.time)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("clock_slack", &self.clock_slack)
            .field("prune_every", &self.prune_every)
            .finish()
    }
}
