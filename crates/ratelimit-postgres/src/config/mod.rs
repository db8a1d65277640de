//! The configuration of a store.

pub(crate) mod options;

use std::fmt;
use std::time::Duration;

use ratelimit_core::store::Time;
use ratelimit_store_kit::Lifetime;
use sqlx::postgres::PgConnectOptions;

/// The configuration of a [`PostgresStore`](crate::PostgresStore).
///
/// ```
/// use ratelimit_postgres::{PostgresConfig, Time};
/// use std::time::Duration;
///
/// let config = PostgresConfig::from_url("postgres://app:secret@db.internal/app")?
///     .timeout(Duration::from_millis(500))
///     .time(Time::Server);
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
///
/// Over a Unix socket, with the directory of the socket as the host:
///
/// ```
/// # use ratelimit_postgres::PostgresConfig;
/// let config = PostgresConfig::from_url("postgres://app@localhost/app?host=/var/run/postgresql")?;
/// # assert!(format!("{config:?}").contains("/var/run/postgresql:5432/app"));
/// let config = PostgresConfig::from_url("postgres://app@%2Fvar%2Frun%2Fpostgresql/app")?; // the same
/// # assert!(format!("{config:?}").contains("/var/run/postgresql:5432/app"));
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
///
/// Over TLS (feature `tls`), with an authority to trust in addition to the machine's, and a client certificate:
///
/// ```
/// # use ratelimit_postgres::PostgresConfig;
/// let config = PostgresConfig::from_url(
///     "postgres://app@db.internal/app?sslmode=verify-full&sslrootcert=/etc/app/authority.pem\
///      &sslcert=/etc/app/client.pem&sslkey=/etc/app/client.key",
/// )?;
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
///
/// Behind PgBouncer, in any of its modes; the store detects it:
///
/// ```
/// # use ratelimit_postgres::PostgresConfig;
/// let config = PostgresConfig::from_url("postgres://app:secret@pgbouncer.internal:6432/app")?;
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// Address, user, password and TLS options of the server.
    pub server: PgConnectOptions,
    /// The schema of the table and the functions; the migration creates it if it does not exist.
    pub schema: String,
    /// The prefix of their names: lower-case ASCII letters, digits and `_`, not starting with a digit, at most 32 bytes.
    pub prefix: String,
    /// Whether the table survives a crash of the server. Takes effect when the table is created.
    pub logged: Logged,
    /// Whether connecting creates the table and the functions if they do not exist yet. For that the user must own the
    /// schema or be allowed to create one. A [lazy](crate::PostgresStore::lazy) store does so at its first connection. One on a
    /// [pool](crate::PostgresStore::with_pool) leaves it to [`PostgresStore::migrate`](crate::PostgresStore::migrate).
    pub migrate: bool,
    /// Whose clock decides: the caller's or the server's.
    pub time: Time,
    /// The maximum duration of a call, including connecting, waiting for other calls, and the reply. The error of a check
    /// that has no answer by then may take up to 10 ms longer, to say whether the check may have been charged.
    pub timeout: Duration,
    /// The maximum number of connections. More than four concurrent calls share statements, and use a further connection
    /// only when many calls wait or one has waited for 2 ms.
    pub connections: usize,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind. At least
    /// [`CLOCK_SLACK`](ratelimit_core::store::CLOCK_SLACK).
    pub clock_slack: Duration,
    /// How long the store waits between two runs that delete expired meters in the background. With `None` or zero, call
    /// [`PostgresStore::prune`](crate::PostgresStore::prune) yourself.
    pub prune_every: Option<Duration>,
    /// Whether a pooler gives each call a different connection, so that nothing may be left on one, neither prepared
    /// statements nor settings. On its own connections the store detects that, so set this only for a pooler that cannot be
    /// detected. With [`PostgresStore::with_pool`](crate::PostgresStore::with_pool) it always applies.
    pub pooler: bool,
}

/// Whether the table survives a crash of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Logged {
    /// It does not. Faster, because nothing is written to the write-ahead log. After a crash, and after a failover to a
    /// standby, all meters start from zero.
    #[default]
    Unlogged,
    /// It does, and it is replicated. Each charge then waits for the disk unless `synchronous_commit` is off.
    Logged,
}

impl PostgresConfig {
    ratelimit_core::kit::setters! {
        server: PgConnectOptions,
        schema: impl Into<String>,
        prefix: impl Into<String>,
        logged: Logged,
        migrate: bool,
        time: Time,
        timeout: Duration,
        connections: usize,
        clock_slack: Duration,
        prune_every: impl Into<Option<Duration>>,
        pooler: bool,
    }

    /// The slack in microseconds.
    pub(crate) fn slack_micros(&self) -> i64 {
        i64::try_from(Lifetime::slack(self.clock_slack).as_micros()).unwrap_or(i64::MAX)
    }
}

impl Default for PostgresConfig {
    /// The server that the environment names as for `psql` (`PGHOST`, …), schema `ratelimit`, no prefix, unlogged,
    /// migrated, the caller's clock, 2 s, eight connections, 10 s of slack, pruned every minute.
    fn default() -> Self {
        Self {
            server: PgConnectOptions::new(),
            schema: "ratelimit".to_owned(),
            prefix: String::new(),
            logged: Logged::default(),
            migrate: true,
            time: Time::default(),
            timeout: Duration::from_secs(2),
            connections: 8,
            clock_slack: Lifetime::SLACK,
            prune_every: Some(Duration::from_secs(60)),
            pooler: false,
        }
    }
}

impl fmt::Debug for PostgresConfig {
    /// Shows neither the password nor the user, except that the user is the default name of the database.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("server", &address_of(&self.server))
            .field("schema", &self.schema)
            .field("prefix", &self.prefix)
            .field("logged", &self.logged)
            .field("migrate", &self.migrate)
            .field("time", &self.time)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("clock_slack", &self.clock_slack)
            .field("prune_every", &self.prune_every)
            .field("pooler", &self.pooler)
            .finish()
    }
}

/// The host to connect to. Parsed from an address, the options have an IPv6 address in brackets, with which it is looked up as
/// a name.
pub(crate) fn host_of(options: &PgConnectOptions) -> &str {
    let host = options.get_host();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The address of a server in a form that may be shown: host, port and database, without the password. Without a database,
/// the server uses the one that is named like the user.
pub(crate) fn address_of(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None if host_of(options).contains(':') => format!("[{}]", host_of(options)),
        None => options.get_host().to_owned(),
    };
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{host}:{}/{database}", options.get_port())
}
