//! A store of your own: meters in an SQLite file, shared by the processes of one machine.
//!
//! Each call is one transaction: read the states of the claimed meters, let the library decide, write back what was
//! charged. The guide *Writing a store* explains it line by line.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use ratelimit_core::meter::State;
use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{Clock, CounterStore, ErrorKind, StoreError, SystemClock, Timestamp};
use ratelimit_store_kit::{Batch, Write, error_kind};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Row, Sqlite, Transaction};

/// A store that keeps meters in an SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    pool: SqlitePool,
}

/// How long a call waits for the other writers of the file.
const PATIENCE: Duration = Duration::from_secs(8);

impl SqliteStore {
    /// Opens the file at `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be opened or is not an SQLite database.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(PATIENCE);
        // One connection: each transaction excludes all others. Those of this process wait in a queue for it, while SQLite lets
        // connections that wait for each other sleep for up to a tenth of a second.
        let pool =
            SqlitePoolOptions::new().max_connections(1).acquire_timeout(PATIENCE).test_before_acquire(false);
        let pool = pool.connect_with(options).await.map_err(failed)?;
        let table = "CREATE TABLE IF NOT EXISTS meters (id BLOB PRIMARY KEY, state BLOB NOT NULL, forget_at INTEGER NOT NULL)";
        sqlx::query(table).execute(&pool).await.map_err(failed)?;
        let index = "CREATE INDEX IF NOT EXISTS meters_forget_at ON meters (forget_at)";
        sqlx::query(index).execute(&pool).await.map_err(failed)?;
        Ok(Self { pool })
    }

    /// Returns the number of meters in the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn meters(&self) -> Result<u64, StoreError> {
        let row = sqlx::query("SELECT count(*) FROM meters").fetch_one(&self.pool).await.map_err(failed)?;
        Ok(row.get::<i64, _>(0).unsigned_abs())
    }

    /// Begins a transaction that excludes other writers.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(failed)
    }
}

impl SqliteStore {
    /// Reads the meters of these calls, lets the library decide, and writes what has changed.
    async fn decide(&self, batch: &Batch) -> Result<Vec<Answer>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut states = Vec::with_capacity(batch.names().len());
        for name in batch.names() {
            states.push(read(&mut transaction, name).await?);
        }
        let decided = batch.decide(states);
        let writes: Vec<_> = batch
            .names()
            .iter()
            .zip(decided.writes)
            .filter_map(|(name, write)| Some((name, write?)))
            .collect();
        if !writes.is_empty() {
            for (name, state) in &writes {
                write(&mut transaction, name, state).await?;
            }
            sweep(&mut transaction, writes.len()).await?;
            transaction.commit().await.map_err(failed)?;
        }
        Ok(decided.answers) // a transaction that is dropped is rolled back
    }
}

impl CounterStore for SqliteStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answers = self.decide(&Batch::of_claims(&[claims])).await?;
        Ok(answers.remove(0)) // one for each slice
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        match self.decide(&Batch::of_claims(slices)).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); slices.len()],
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.decide(&Batch::of_refunds(now, refunds)).await.map(drop)
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for claim in claims.iter() {
            let forget = sqlx::query("DELETE FROM meters WHERE id = ?").bind(claim.id.to_bytes());
            forget.execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }
}

async fn read(transaction: &mut Transaction<'_, Sqlite>, name: &[u8]) -> Result<Option<State>, StoreError> {
    let query = sqlx::query("SELECT state FROM meters WHERE id = ?").bind(name);
    let Some(row) = query.fetch_optional(&mut **transaction).await.map_err(failed)? else {
        return Ok(None);
    };
    let corrupt = |error: ratelimit_core::meter::CorruptState| {
        StoreError::new("sqlite", ErrorKind::Corrupt, error.to_string())
    };
    State::from_bytes(row.get(0)).map(Some).map_err(corrupt)
}

async fn write(
    transaction: &mut Transaction<'_, Sqlite>,
    name: &[u8],
    write: &Write,
) -> Result<(), StoreError> {
    // Never a shorter lifetime: claims with other leases may share a log, whose units count for the longest of them.
    let upsert = "INSERT INTO meters (id, state, forget_at) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE \
                  SET state = excluded.state, forget_at = max(forget_at, excluded.forget_at)";
    let forget_at =
        write.lifetime.as_millis().map_or(i64::MAX, |millis| now().saturating_add_unsigned(millis));
    let query = sqlx::query(upsert).bind(name).bind(write.state.to_bytes()).bind(forget_at);
    query.execute(&mut **transaction).await.map_err(failed)?;
    Ok(())
}

/// Removes a few meters whose lifetime is over: a hundred more than this call has written, so that the file does not grow.
async fn sweep(transaction: &mut Transaction<'_, Sqlite>, written: usize) -> Result<(), StoreError> {
    let most = i64::try_from(written + 100).unwrap_or(i64::MAX);
    let forgotten = "DELETE FROM meters WHERE id IN (SELECT id FROM meters WHERE forget_at < ? ORDER BY forget_at LIMIT ?)";
    sqlx::query(forgotten).bind(now()).bind(most).execute(&mut **transaction).await.map_err(failed)?;
    Ok(())
}

/// The milliseconds since 1970 by the clock of this machine, whatever the clock of the caller shows.
fn now() -> i64 {
    i64::try_from(SystemClock::new().now().as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// A failed transaction leaves nothing behind.
fn failed(error: sqlx::Error) -> StoreError {
    let kind = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().and_then(|code| code.parse().ok());
            code.map_or(ErrorKind::Server, error_kind::of_sqlite)
        }
        sqlx::Error::PoolTimedOut => ErrorKind::Contended,
        sqlx::Error::Io(error) => error_kind::of_io(error.kind()),
        _ => ErrorKind::Server,
    };
    StoreError::new("sqlite", kind, "the transaction failed").caused_by(error).not_applied()
}

/// Compiles the example of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-store.md")]
struct Guide;
