//! How fast this store is beside what people write by hand: one upsert for each decision, through a pool of sqlx.
//!
//! ```text
//! cargo run --release -p ratelimit-postgres --example against_an_upsert [seconds a round] [rounds]
//! ```
//! Both run on the same server (`RATELIMIT_POSTGRES_URL`, or one that is started), in turns, with as many connections, on
//! unlogged tables. Prints decisions a second and latencies for each number of tasks at once, and the ratios.
#![allow(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

use std::time::{Duration, Instant, SystemTime};

use ratelimit_core::{Limit, RateLimiter};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_testbed::Testbed;
use sqlx::postgres::{PgPool, PgPoolOptions};

const CONNECTIONS: u32 = 8;
const UPSERT: &str = "INSERT INTO by_hand (key, win, n) VALUES ($1, $2, 1)
    ON CONFLICT (key) DO UPDATE SET n = CASE WHEN by_hand.win = excluded.win THEN by_hand.n + 1 ELSE 1 END,
    win = excluded.win RETURNING n";

/// One way of deciding.
#[derive(Clone)]
enum Way {
    Store(RateLimiter<PostgresStore>),
    Upsert(PgPool),
}

impl Way {
    async fn decide(&self, key: &str) -> bool {
        match self {
            Self::Store(limiter) => limiter.check(key).await.unwrap().allowed(),
            Self::Upsert(pool) => {
                let minute = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64 / 60;
                let count: i64 =
                    sqlx::query_scalar(UPSERT).bind(key).bind(minute).fetch_one(pool).await.unwrap();
                count <= 1_000_000
            }
        }
    }
}

/// What came of a round, or of several.
#[derive(Default)]
struct Figures {
    latencies: Vec<Duration>,
    took: Duration,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.took += other.took;
    }

    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }

    fn at(&self, share: f64) -> Duration {
        let place = (self.latencies.len() as f64 * share) as usize;
        self.latencies[place.min(self.latencies.len() - 1)]
    }

    fn print(&mut self, name: &str) {
        self.latencies.sort_unstable();
        let [middle, high] = [self.at(0.5), self.at(0.99)];
        println!("  {name:8} {:9.0}/s  p50 {middle:9.1?}  p99 {high:9.1?}", self.rate());
    }
}

async fn round(way: &Way, tasks: usize, keys: u64, lasts: Duration) -> Figures {
    let began = Instant::now();
    let tasks: Vec<_> = (0..tasks as u64)
        .map(|task| {
            let way = way.clone();
            tokio::spawn(async move {
                let (mut latencies, mut random) = (Vec::new(), task * 7_919 + 1);
                while began.elapsed() < lasts {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = format!("user:{}", (random >> 33) % keys);
                    let since = Instant::now();
                    assert!(way.decide(&key).await);
                    latencies.push(since.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    Figures { latencies, took: began.elapsed() }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let lasts = Duration::from_secs(arguments.next().unwrap_or(Ok(2))?);
    let rounds = arguments.next().unwrap_or(Ok(5))?;
    let server = Testbed::from_env().postgres().await?;
    let pool =
        PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false).connect(server.url());
    let pool = pool.await?;
    sqlx::raw_sql("DROP TABLE IF EXISTS by_hand; DROP SCHEMA IF EXISTS bench CASCADE").execute(&pool).await?;
    sqlx::raw_sql(
        "CREATE UNLOGGED TABLE by_hand (key text PRIMARY KEY, win bigint, n bigint) WITH (fillfactor = 70)",
    )
    .execute(&pool)
    .await?;
    let config = PostgresConfig {
        schema: "bench".to_owned(),
        connections: CONNECTIONS as usize,
        ..PostgresConfig::from_url(server.url())?
    };
    let store = PostgresStore::connect_with(config).await?;
    store.migrate().await?;
    let limit: Limit = "1000000/min".parse()?;
    let ways = [Way::Store(RateLimiter::new(store, limit)), Way::Upsert(pool)];
    for (tasks, keys) in [(1, 10_000), (16, 10_000), (128, 10_000), (128, 1)] {
        let mut figures = [Figures::default(), Figures::default()];
        for _ in 0..rounds {
            for (way, figures) in ways.iter().zip(&mut figures) {
                figures.add(round(way, tasks, keys, lasts).await);
            }
        }
        println!("{tasks} at once on {keys} keys, {rounds} rounds of {lasts:?} each:");
        let [store, upsert] = &mut figures;
        store.print("store");
        upsert.print("upsert");
        println!(
            "  ratio    {:9.2}          p50 {:9.2}  p99 {:9.2}",
            store.rate() / upsert.rate(),
            store.at(0.5).as_secs_f64() / upsert.at(0.5).as_secs_f64(),
            store.at(0.99).as_secs_f64() / upsert.at(0.99).as_secs_f64(),
        );
    }
    Ok(())
}
