//! Where connections come from: the store opens its own, or uses a pool of the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row as _, SqlSafeStr};
use tokio::time::Instant;

use crate::config::{PostgresConfig, host_of};
use crate::wire::schema::{Names, SETTINGS};

/// A setting that only our own connections have: a pooler that ignores settings drops this one as well.
const MARK: (&str, &str) = ("ratelimit.connection", "own");
const MARKED: &str = "SELECT coalesce(current_setting('ratelimit.connection', true) = 'own', false)";

/// How long a connection may be idle. Less than it usually takes a server, a proxy or a firewall to close or forget one, which
/// the next call would notice only by an error.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// Where connections come from.
#[derive(Debug)]
pub(crate) struct Source {
    kind: Kind,
    /// Whether nothing may be left on a connection between two calls.
    pooled: AtomicBool,
}

#[derive(Debug)]
enum Kind {
    Own { settled: Box<PgConnectOptions>, bare: Box<PgConnectOptions>, idle: Mutex<Vec<Idle>> },
    Pool(PgPool),
}

/// Idle connections with the instants since when, the last one of which is taken first.
type Idle = (PgConnection, Instant);

/// A connection in use.
pub(crate) enum ActiveConnection {
    Own(Box<PgConnection>),
    Pool(PoolConnection<Postgres>),
}

impl ActiveConnection {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Pool(connection) => connection,
        }
    }
}

impl Source {
    pub(crate) fn own_connections(config: &PostgresConfig) -> Self {
        let bare = quiet(&config.server);
        let kind = Kind::Own {
            settled: Box::new(settled(&bare, config)),
            bare: Box::new(bare),
            idle: Mutex::default(),
        };
        Self { kind, pooled: AtomicBool::new(config.pooler) }
    }

    /// There may be a pooler behind the pool's connections, which cannot be detected.
    pub(crate) fn pool(pool: PgPool) -> Self {
        Self { kind: Kind::Pool(pool), pooled: AtomicBool::new(true) }
    }

    /// Whether a pool owns the connections.
    pub(crate) fn is_pool(&self) -> bool {
        matches!(self.kind, Kind::Pool(_))
    }

    /// Whether calls must be sent as text, which leaves nothing on the connection.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// A connection for a call: an idle one, or a new one with prepared statements if it can keep them.
    pub(crate) async fn open(&self, names: &Names) -> Result<ActiveConnection, sqlx::Error> {
        let (settled, bare) = match &self.kind {
            Kind::Pool(pool) => return Ok(ActiveConnection::Pool(pool.acquire().await?)),
            Kind::Own { settled, bare, .. } => (settled, bare),
        };
        if let Some(connection) = self.take_idle() {
            return Ok(ActiveConnection::Own(Box::new(connection)));
        }
        if !self.is_pooled() {
            match settled.connect().await {
                Ok(mut connection) => {
                    if is_marked(&mut connection).await? {
                        prepare(&mut connection, names).await?;
                    } else {
                        self.pooled.store(true, Ordering::Relaxed);
                    }
                    return Ok(ActiveConnection::Own(Box::new(connection)));
                }
                Err(error) if refuses_settings(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let connection = bare.connect().await?;
        self.pooled.store(true, Ordering::Relaxed);
        Ok(ActiveConnection::Own(Box::new(connection)))
    }

    /// The connection that was used last. Closes those that have been idle for too long.
    fn take_idle(&self) -> Option<PgConnection> {
        let mut idle = self.idle()?;
        let old = idle.partition_point(|(_, since)| since.elapsed() > MAX_IDLE);
        idle.drain(..old);
        idle.pop().map(|(connection, _)| connection)
    }

    /// A connection for a migration, without the time limit of calls.
    pub(crate) async fn open_bare(&self) -> Result<ActiveConnection, sqlx::Error> {
        match &self.kind {
            Kind::Pool(pool) => Ok(ActiveConnection::Pool(pool.acquire().await?)),
            Kind::Own { bare, .. } => Ok(ActiveConnection::Own(Box::new(bare.connect().await?))),
        }
    }

    /// Takes back a connection that can be used again.
    pub(crate) fn give_back(&self, active: ActiveConnection) {
        if let (ActiveConnection::Own(connection), Some(mut idle)) = (active, self.idle()) {
            idle.push((*connection, Instant::now()));
        }
    }

    /// Closes a broken connection.
    pub(crate) fn hang_up(&self, active: ActiveConnection) {
        match active {
            ActiveConnection::Own(connection) => drop(connection),
            ActiveConnection::Pool(connection) => drop(connection.detach()),
        }
    }

    /// Closes the idle connections.
    pub(crate) fn forget(&self) {
        if let Some(mut idle) = self.idle() {
            idle.clear();
        }
    }

    fn idle(&self) -> Option<MutexGuard<'_, Vec<Idle>>> {
        match &self.kind {
            Kind::Own { idle, .. } => Some(idle.lock().unwrap_or_else(PoisonError::into_inner)),
            Kind::Pool(_) => None,
        }
    }
}

/// Prepares the statements, so that the first call is one round trip like all others. A call reports a missing function.
async fn prepare(connection: &mut PgConnection, names: &Names) -> Result<(), sqlx::Error> {
    for statement in names.to_prepare() {
        match connection.prepare(AssertSqlSafe(statement.clone()).into_sql_str()).await {
            Ok(_) => {}
            Err(sqlx::Error::Database(_)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the connection has the requested settings.
async fn is_marked(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql(MARKED).fetch_one(connection).await?.try_get(0)
}

/// Whether connecting may have failed because of the settings, which poolers refuse. If the cause is another one,
/// connecting without them fails with the same error.
fn refuses_settings(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "08P01" || code == "0A000")
}

fn quiet(options: &PgConnectOptions) -> PgConnectOptions {
    let mut options = options.clone().host(host_of(options));
    if options.get_application_name().is_none() {
        options = options.application_name("ratelimit");
    }
    // Logging each call with its text would cost more than the call. No reply contains fractions, and poolers do not know
    // the setting.
    options.disable_statement_logging().extra_float_digits(None)
}

/// The options of connections for calls.
fn settled(bare: &PgConnectOptions, config: &PostgresConfig) -> PgConnectOptions {
    let millis = config.timeout.as_millis().clamp(1, 86_400_000);
    bare.clone().options(SETTINGS).options([MARK]).options([
        ("statement_timeout", millis.to_string()),
        // Shorter than the caller's timeout, so that the caller learns that nothing was charged.
        ("lock_timeout", (millis * 3 / 4).max(1).to_string()),
        ("default_transaction_isolation", "read committed".to_owned()),
    ])
}
