//! PostgreSQL: ours compared with one upsert per decision, through a pool of sqlx with the same number of connections.

use anyhow::{Result, bail, ensure};
use ratelimit_core::{Clock as _, Limit, RateLimiter, SystemClock};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::{PgPool, PgPoolOptions};

use super::load::{Chooser, Load, PATIENCE, Remote};
use super::ours::Ours;
use super::store::Store;
use crate::session::Session;

pub(super) const STORE: Store = Store {
    name: "postgres",
    title: "PostgreSQL",
    contestants: &["ours", "ours, batches of 32", UPSERT],
    baseline: UPSERT,
    log: None,
    open,
};

const UPSERT: &str = "one upsert per decision";

/// Enough to keep two processors busy.
const CONNECTIONS: u32 = 8;

fn open(contestant: &str, url: &str, millis: u64) -> Result<Box<dyn Session>> {
    match contestant {
        "ours" => Load::open(ours(url, 1), millis),
        "ours, batches of 32" => Load::open(ours(url, 32), millis),
        UPSERT => Load::open(Upsert::connect(url), millis),
        unknown => bail!("there is no contestant {unknown:?} on PostgreSQL in this program"),
    }
}

async fn ours(url: &str, batch: usize) -> Result<Ours<PostgresStore>> {
    let config =
        PostgresConfig::from_url(url)?.schema("bench").connections(CONNECTIONS as usize).timeout(PATIENCE);
    let store = PostgresStore::connect_with(config).await?;
    store.migrate().await?;
    let limit: Limit = "1000000000/h".parse()?;
    Ok(Ours { limiter: RateLimiter::new(store, limit), batch })
}

/// A fixed window in one statement, as commonly written: unlogged, and updated in place if possible.
struct Upsert {
    pool: PgPool,
    clock: SystemClock,
}

const TABLE: &str = "CREATE UNLOGGED TABLE IF NOT EXISTS by_hand (key text PRIMARY KEY, win bigint, n bigint) \
    WITH (fillfactor = 70)";

const STATEMENT: &str = "INSERT INTO by_hand (key, win, n) VALUES ($1, $2, 1) \
    ON CONFLICT (key) DO UPDATE SET n = CASE WHEN by_hand.win = excluded.win THEN by_hand.n + 1 ELSE 1 END, \
    win = excluded.win RETURNING n";

impl Upsert {
    async fn connect(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
        // A ping before each use would be a second round trip.
        let pool = pool.test_before_acquire(false).connect(url).await?;
        sqlx::raw_sql(TABLE).execute(&pool).await?;
        Ok(Self { pool, clock: SystemClock::new() })
    }
}

impl Remote for Upsert {
    async fn call(&self, keys: &mut Chooser) -> Result<u64> {
        let hour = i64::try_from(self.clock.now().as_nanos() / 3_600_000_000_000)?;
        let count: i64 =
            sqlx::query_scalar(STATEMENT).bind(keys.one()).bind(hour).fetch_one(&self.pool).await?;
        ensure!(count > 0, "it was not counted");
        Ok(1)
    }
}
