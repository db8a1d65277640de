//! A store of your own: meters in an SQLite file, shared by the processes of one machine.
//!
//! Each call is one transaction: read the states of the claimed meters, let the library decide, write back what was
//! charged. The guide *Writing a store* explains it line by line.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use ratelimit_core::{
    Answer, Claims, CounterStore, Decisions, ErrorKind, Meter, MeterId, Promises, Refund, State, StoreError,
    Time, Timestamp, decide, refund,
};
use ratelimit_store_kit::error_kind;
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
        let pool =
            SqlitePoolOptions::new().max_connections(4).acquire_timeout(PATIENCE).connect_with(options).await;
        let pool = pool.map_err(failed)?;
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

impl CounterStore for SqliteStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut transaction = self.begin().await?;
        let mut states = Vec::with_capacity(claims.len());
        for claim in claims.iter() {
            states.push(read(&mut transaction, &claim.id).await?);
        }
        let answer = decide(&claims, &mut states);
        if answer.charged {
            for (claim, state) in claims.iter().zip(&states).filter(|(claim, _)| claim.cost > 0) {
                write(&mut transaction, &claim.id, &claim.meter, state.as_ref()).await?;
            }
            sweep(&mut transaction, &claims).await?;
            transaction.commit().await.map_err(failed)?;
        }
        Ok(answer) // a transaction that is dropped is rolled back
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for given in refunds {
            let mut state = read(&mut transaction, &given.id).await?;
            if refund(&given.meter, &mut state, given.cost, given.receipt, now) {
                write(&mut transaction, &given.id, &given.meter, state.as_ref()).await?;
            }
        }
        transaction.commit().await.map_err(failed)
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

async fn read(
    transaction: &mut Transaction<'_, Sqlite>,
    id: &MeterId<'_>,
) -> Result<Option<State>, StoreError> {
    let query = sqlx::query("SELECT state FROM meters WHERE id = ?").bind(id.to_bytes());
    let Some(row) = query.fetch_optional(&mut **transaction).await.map_err(failed)? else {
        return Ok(None);
    };
    let corrupt = |error: ratelimit_core::CorruptState| {
        StoreError::new("sqlite", ErrorKind::Corrupt, error.to_string())
    };
    State::from_bytes(row.get(0)).map(Some).map_err(corrupt)
}

async fn write(
    transaction: &mut Transaction<'_, Sqlite>,
    id: &MeterId<'_>,
    meter: &Meter,
    state: Option<&State>,
) -> Result<(), StoreError> {
    let Some(state) = state else { return Ok(()) };
    // Claims with other leases may share a log: its units count for the longest of them.
    let upsert = "INSERT INTO meters (id, state, forget_at) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE \
                  SET state = excluded.state, forget_at = max(forget_at, excluded.forget_at)";
    let query =
        sqlx::query(upsert).bind(id.to_bytes()).bind(state.to_bytes()).bind(column(meter.forget_at(state)));
    query.execute(&mut **transaction).await.map_err(failed)?;
    Ok(())
}

/// Removes a few meters that can no longer influence a decision, even for claims whose clock is a little behind: a hundred more
/// than this charge can add, so that the file does not grow.
async fn sweep(transaction: &mut Transaction<'_, Sqlite>, claims: &Claims<'_>) -> Result<(), StoreError> {
    let most = i64::try_from(claims.len() + 100).unwrap_or(i64::MAX);
    let slack = i64::try_from(ratelimit_core::CLOCK_SLACK.as_nanos()).unwrap_or(i64::MAX);
    let forgotten = "DELETE FROM meters WHERE id IN (SELECT id FROM meters WHERE forget_at < ? ORDER BY forget_at LIMIT ?)";
    let query = sqlx::query(forgotten).bind(column(claims.now()).saturating_sub(slack)).bind(most);
    query.execute(&mut **transaction).await.map_err(failed)?;
    Ok(())
}

/// Every instant that a meter computes fits a signed 64-bit column.
fn column(instant: Timestamp) -> i64 {
    i64::try_from(instant.as_nanos()).unwrap_or(i64::MAX)
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
