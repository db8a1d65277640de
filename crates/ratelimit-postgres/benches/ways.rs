//! The cost of each kind of connection: TCP, a Unix socket, TLS, PgBouncer, a pool of the program.
//!
//! `cargo bench -p ratelimit-postgres --features tls --bench ways [-- SECONDS]`: they take turns, medians of seven rounds.
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ratelimit_core::{Limit, RateLimiter};
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_testbed::{Certificates, PgBouncer, Postgres, Server, Testbed};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

type Error = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 7;
const KEYS: u64 = 1_000;
const CALLERS: [usize; 2] = [1, 64];

struct Way {
    name: &'static str,
    limiter: RateLimiter<PostgresStore>,
    rates: Vec<Vec<f64>>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1.0);
    let testbed = Testbed::from_env();
    let server = testbed.postgres_with(Postgres { socket: true, ..Postgres::default() }).await?;
    let bouncer = testbed.pgbouncer(&server, PgBouncer::default()).await?;
    let tcp = format!("postgres://postgres@{}/postgres", server.address());
    let mut ways = vec![
        own_connections("TCP", &tcp).await?,
        own_connections("Unix socket", server.url()).await?,
        pool("own pool", &tcp).await?,
        pool("own pool, Unix socket", server.url()).await?,
        own_connections("PgBouncer", bouncer.url()).await?,
        pool("own pool, PgBouncer", bouncer.url()).await?,
    ];
    let encrypted: Option<Server> = if cfg!(feature = "tls") {
        let certificates = Some(Arc::new(Certificates::new()?));
        Some(testbed.postgres_with(Postgres { certificates, ..Postgres::default() }).await?)
    } else {
        None
    };
    if let Some(server) = &encrypted {
        ways.insert(2, own_connections("TLS", server.url()).await?);
    }
    for round in 0..=ROUNDS {
        for way in &mut ways {
            for (place, callers) in CALLERS.into_iter().enumerate() {
                let rate = measure(&way.limiter, callers, Duration::from_secs_f64(seconds)).await?;
                // The first round warms up.
                if round > 0 {
                    way.rates[place].push(rate);
                }
            }
        }
    }
    println!("{:24} {:>16} {:>16}", "checks a second", "1 caller", "64 callers");
    for way in &mut ways {
        let [one, many] = [0, 1].map(|place| median(&mut way.rates[place]));
        println!("{:24} {one:16.0} {many:16.0}", way.name);
    }
    Ok(())
}

async fn own_connections(name: &'static str, url: &str) -> Result<Way, Error> {
    let store = PostgresStore::connect_with(PostgresConfig::from_url(url)?.timeout(TIMEOUT)).await?;
    way(name, store).await
}

async fn pool(name: &'static str, url: &str) -> Result<Way, Error> {
    let server = url.parse::<PgConnectOptions>()?.extra_float_digits(None);
    let pool =
        PgPoolOptions::new().max_connections(8).test_before_acquire(false).connect_with(server).await?;
    way(name, PostgresStore::with_pool(pool, PostgresConfig::default().timeout(TIMEOUT))?).await
}

const TIMEOUT: Duration = Duration::from_secs(20);

async fn way(name: &'static str, store: PostgresStore) -> Result<Way, Error> {
    store.migrate().await?;
    let limit: Limit = "1000000000/h".parse()?;
    Ok(Way { name, limiter: RateLimiter::new(store, limit), rates: vec![Vec::new(); CALLERS.len()] })
}

/// Checks per second by this number of concurrent callers.
async fn measure(
    limiter: &RateLimiter<PostgresStore>,
    callers: usize,
    duration: Duration,
) -> Result<f64, Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let begin = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut checks = 0;
                while begin.elapsed() < duration {
                    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
                    limiter.check(format!("user:{}", nth % KEYS).as_str()).await?;
                    checks += 1;
                }
                Ok::<u64, Error>(checks)
            })
        })
        .collect();
    let mut checks = 0;
    for task in tasks {
        checks += task.await??;
    }
    Ok(checks as f64 / begin.elapsed().as_secs_f64())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
