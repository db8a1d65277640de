//! Connections to the server, and one statement on one of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimit_core::{ErrorKind, StoreError};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, SqlSafeStr};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::config::PostgresConfig;
use crate::error::Failure;
use crate::schema::{Names, SETTINGS};
use crate::sure::Sure;
use crate::take::{Many, One};

/// How often a statement is tried that the server undid because of others.
const TRIES: usize = 4;

/// How long a migration may take.
const MIGRATION: Duration = Duration::from_secs(60);

/// One call of one function.
#[derive(Debug)]
pub(crate) enum Call {
    Claim {
        ids: Vec<Vec<u8>>,
        writes: i32,
        slices: Vec<i64>,
        claims: Vec<i64>,
        by_server: bool,
        slack: i64,
    },
    /// See `take.sql`.
    Take {
        ids: Vec<Vec<u8>>,
        lasts: Vec<i32>,
        claims: Vec<i64>,
        sure: Vec<i64>,
        shares: Vec<f64>,
        by_server: bool,
        slack: i64,
    },
    TakeOne {
        id: Vec<u8>,
        claim: [i64; 8],
        by_server: bool,
        slack: i64,
        sure: Sure,
    },
    Refund {
        ids: Vec<Vec<u8>>,
        now: i64,
        refunds: Vec<i64>,
        by_server: bool,
    },
    Reset {
        ids: Vec<Vec<u8>>,
    },
    Prune {
        first: i64,
        blocks: i64,
    },
}

/// What a function answers.
#[derive(Debug)]
pub(crate) enum Reply {
    Numbers(Vec<i64>),
    /// The answer to [`Call::TakeOne`].
    One(One),
    /// The answer to [`Call::Take`].
    Many(Box<Many>),
}

impl Reply {
    /// The answer of every call but [`Call::Take`] and [`Call::TakeOne`].
    pub(crate) fn numbers(self) -> Result<Vec<i64>, Failure> {
        match self {
            Self::Numbers(numbers) => Ok(numbers),
            Self::One(_) | Self::Many(_) => Err(Failure::strange_reply()),
        }
    }
}

/// The way to one server.
#[derive(Debug)]
pub(crate) struct Link {
    config: PostgresConfig,
    names: Names,
    address: Arc<str>,
    source: Source,
    permits: Semaphore,
}

#[derive(Debug)]
enum Source {
    /// Connections of our own, each with its statements prepared.
    Own { options: Box<PgConnectOptions>, idle: Mutex<Vec<PgConnection>> },
    /// Those of a pool that somebody else owns.
    Pool(PgPool),
}

/// A connection in use.
enum Wire {
    Own(Box<PgConnection>),
    Pool(PoolConnection<Postgres>),
}

impl Wire {
    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Pool(connection) => connection,
        }
    }
}

/// Host, port and database, without the user and the password.
pub(crate) fn address_of(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{host}:{}/{database}", options.get_port())
}

impl Link {
    /// A way to the configuration's server, or by the connections of `pool`.
    pub(crate) fn new(config: PostgresConfig, pool: Option<PgPool>) -> Result<Self, StoreError> {
        let names = Names::new(&config, pool.is_none())?;
        let address = match &pool {
            Some(pool) => address_of(&pool.connect_options()),
            None => address_of(&config.server),
        };
        let source = match pool {
            Some(pool) => Source::Pool(pool),
            None => Source::Own { options: Box::new(options(&config)), idle: Mutex::default() },
        };
        let permits = Semaphore::new(config.connections.max(1));
        Ok(Self { config, names, address: address.into(), source, permits })
    }

    pub(crate) fn config(&self) -> &PostgresConfig {
        &self.config
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Makes the first connection.
    pub(crate) async fn connect(&self) -> Result<(), Failure> {
        self.wire(Instant::now() + self.config.timeout).await.map(|(_permit, wire)| self.give_back(wire))
    }

    /// Sees to it that there is a connection for the next call. A pool is not asked: to look would cost it a trip.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<(), Failure> {
        match self.source {
            Source::Own { .. } => self.wire(deadline).await.map(|(_permit, wire)| self.give_back(wire)),
            Source::Pool(_) => Ok(()),
        }
    }

    /// Calls a function, again if the server undid it because of others.
    pub(crate) async fn run(&self, call: &Call, deadline: Instant) -> Result<Reply, Failure> {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.run_once(call, deadline).await {
                Err(failure) if failure.conflict && tries > 0 => {}
                result => return result,
            }
        }
    }

    async fn run_once(&self, call: &Call, deadline: Instant) -> Result<Reply, Failure> {
        let (_permit, mut wire) = self.wire(deadline).await?;
        let failure = match timeout_at(deadline, self.send(wire.connection(), call)).await {
            Ok(Ok(reply)) => {
                self.give_back(wire);
                return Ok(reply);
            }
            Ok(Err(error)) => Failure::calling(error),
            Err(_) => Failure::new(ErrorKind::Timeout, "no answer within the time limit").maybe_applied(),
        };
        if failure.sane {
            self.give_back(wire);
        } else {
            self.hang_up(wire, failure.kind);
        }
        Err(failure.at(&self.address))
    }

    async fn send(&self, connection: &mut PgConnection, call: &Call) -> Result<Reply, sqlx::Error> {
        let scalar = |sql: &Arc<str>| sqlx::query_scalar::<_, Vec<i64>>(AssertSqlSafe(sql.clone()));
        let query = match call {
            Call::TakeOne { id, claim, by_server, slack, sure } => {
                let query = sqlx::query_scalar(AssertSqlSafe(self.names.take_one.clone())).bind(id);
                let query = claim.iter().fold(query, |query, number| query.bind(number));
                let query = query.bind(by_server).bind(slack);
                let query = query.bind(sure.since).bind(sure.until).bind(sure.share).bind(sure.keep);
                let mut rows = query.fetch_all(connection).await?;
                return rows.pop().map(Reply::One).ok_or(sqlx::Error::RowNotFound);
            }
            Call::Take { ids, lasts, claims, sure, shares, by_server, slack } => {
                let query = sqlx::query_as::<_, Many>(AssertSqlSafe(self.names.take.clone()));
                let query = query.bind(ids).bind(lasts).bind(claims).bind(sure).bind(shares);
                let query = query.bind(by_server).bind(slack);
                let mut rows = query.fetch_all(connection).await?;
                return rows.pop().map(|many| Reply::Many(Box::new(many))).ok_or(sqlx::Error::RowNotFound);
            }
            Call::Claim { ids, writes, slices, claims, by_server, slack } => scalar(&self.names.claim)
                .bind(ids)
                .bind(writes)
                .bind(slices)
                .bind(claims)
                .bind(by_server)
                .bind(slack),
            Call::Refund { ids, now, refunds, by_server } => {
                scalar(&self.names.refund).bind(ids).bind(now).bind(refunds).bind(by_server)
            }
            Call::Reset { ids } => scalar(&self.names.reset).bind(ids),
            Call::Prune { first, blocks } => scalar(&self.names.prune).bind(first).bind(blocks),
        };
        // To the end of the reply, not just to its row: the statement is committed after that.
        let mut rows = query.fetch_all(connection).await?;
        rows.pop().map(Reply::Numbers).ok_or(sqlx::Error::RowNotFound)
    }

    async fn wire(&self, deadline: Instant) -> Result<(SemaphorePermit<'_>, Wire), Failure> {
        let late = |message| Failure::new(ErrorKind::Timeout, message).at(&self.address);
        let permit = match timeout_at(deadline, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit,
            _ => return Err(late("all connections were busy until the time limit")),
        };
        match timeout_at(deadline, self.open()).await {
            Ok(Ok(wire)) => Ok((permit, wire)),
            Ok(Err(error)) => Err(Failure::connecting(error).at(&self.address)),
            Err(_) => {
                let failure = Failure::new(ErrorKind::Unreachable, "no connection within the time limit");
                Err(failure.at(&self.address))
            }
        }
    }

    async fn open(&self) -> Result<Wire, sqlx::Error> {
        let (options, idle) = match &self.source {
            Source::Pool(pool) => return Ok(Wire::Pool(pool.acquire().await?)),
            Source::Own { options, idle } => (options, idle),
        };
        let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = kept {
            return Ok(Wire::Own(Box::new(connection)));
        }
        let mut connection = options.connect().await?;
        // So that the first call is one trip like all others. If a function is not there, the call says so.
        for call in
            [&self.names.take_one, &self.names.take, &self.names.claim, &self.names.refund, &self.names.reset]
        {
            match connection.prepare(AssertSqlSafe(call.clone()).into_sql_str()).await {
                Ok(_) => {}
                Err(sqlx::Error::Database(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Wire::Own(Box::new(connection)))
    }

    fn give_back(&self, wire: Wire) {
        if let (Wire::Own(connection), Source::Own { idle, .. }) = (wire, &self.source) {
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(*connection);
        }
    }

    /// Closes a connection that cannot go on, and the idle ones if they will have gone with it.
    fn hang_up(&self, wire: Wire, kind: ErrorKind) {
        match wire {
            Wire::Own(connection) => drop(connection),
            Wire::Pool(connection) => drop(connection.detach()),
        }
        if let (ErrorKind::Unreachable, Source::Own { idle, .. }) = (kind, &self.source) {
            idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Puts the table and the functions on the server unless they are there.
    pub(crate) async fn migrate(&self) -> Result<(), Failure> {
        let migration = async {
            let mut wire = match &self.source {
                Source::Pool(pool) => Wire::Pool(pool.acquire().await?),
                // Without the time limit of calls.
                Source::Own { .. } => Wire::Own(Box::new(quiet(&self.config.server).connect().await?)),
            };
            let done = self.migrate_on(wire.connection()).await;
            if done.is_err() {
                self.hang_up(wire, ErrorKind::Server);
            }
            done
        };
        match tokio::time::timeout(MIGRATION, migration).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::calling(error).at(&self.address)),
            Err(_) => {
                return Err(Failure::new(ErrorKind::Timeout, "the migration took too long").at(&self.address));
            }
        }
        // Connections that were made before do not have the statement prepared.
        if let Source::Own { idle, .. } = &self.source {
            idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        self.connect().await
    }

    async fn migrate_on(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let check = AssertSqlSafe(self.names.check(self.config.logged));
        if sqlx::query_scalar::<_, bool>(check).persistent(false).fetch_one(&mut *connection).await? {
            return Ok(());
        }
        // Several statements in one request are one transaction.
        sqlx::raw_sql(AssertSqlSafe(self.names.migration(self.config.logged))).execute(connection).await?;
        Ok(())
    }
}

fn quiet(options: &PgConnectOptions) -> PgConnectOptions {
    let options = match options.get_application_name() {
        Some(_) => options.clone(),
        None => options.clone().application_name("ratelimit"),
    };
    // A log line for each call, with its text, would cost more than the call.
    options.disable_statement_logging()
}

/// The options of connections for calls.
fn options(config: &PostgresConfig) -> PgConnectOptions {
    let millis = config.timeout.as_millis().clamp(1, 86_400_000);
    quiet(&config.server).options(SETTINGS).options([
        ("statement_timeout", millis.to_string()),
        // Sooner than the caller gives up: so it is told that nothing was charged.
        ("lock_timeout", (millis * 3 / 4).max(1).to_string()),
        ("default_transaction_isolation", "read committed".to_owned()),
    ])
}
