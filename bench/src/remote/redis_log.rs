//! The memory of a logged unit on Redis.

use std::time::Duration;

use anyhow::{Result, ensure};
use ratelimit_core::{Clock as _, Limit, ManualClock, RateLimiter, SystemClock};
use ratelimit_redis::{RedisConfig, RedisStore};
use tokio::runtime::Runtime;

use super::redis_connection;
use crate::keys::Key;
use crate::session::{Session, figure};

const PERIOD: Duration = Duration::from_secs(3_600);

struct LogMemory {
    runtime: Runtime,
    url: String,
    units: u64,
}

/// Opens a session that logs about this number of units at each step.
pub(super) fn open(url: &str, units: u64) -> Result<Box<dyn Session>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(Box::new(LogMemory { runtime, url: url.to_owned(), units }))
}

impl Session for LogMemory {
    /// Bytes of the server's memory per unit under this limit, including the overhead of its key.
    fn step(&mut self, limit: u64) -> Result<Vec<f64>> {
        self.runtime.block_on(weigh(&self.url, limit, (self.units / limit).max(1)))
    }
}

async fn weigh(url: &str, limit: u64, keys: u64) -> Result<Vec<f64>> {
    let store = RedisStore::connect_with(RedisConfig::from_url(url)?).await?;
    let start = SystemClock::new().now();
    let clock = ManualClock::at(start);
    let log = Limit::sliding_log(limit, PERIOD).build()?;
    // A namespace that no other program and no former run uses.
    let namespace = format!("log{limit}at{}", start.as_nanos());
    let limiter = RateLimiter::new(store, log).with_clock(clock.clone()).with_namespace(&namespace);
    let mut key = Key::default();
    for _ in 0..limit {
        for number in 0..keys {
            key.set(number);
            // Each unit at its own instant, and all of them within a period.
            clock.advance(PERIOD / 2 / u32::try_from(limit * keys)?);
            ensure!(limiter.check(&key.text).await?.allowed(), "the log is full too soon");
        }
    }
    Ok(vec![figure(used(url, &namespace, keys).await?) / figure(limit * keys)])
}

/// The bytes of the server's memory that the keys of a namespace take.
async fn used(url: &str, namespace: &str, keys: u64) -> Result<u64> {
    let mut connection = redis_connection::connect(url).await?;
    let mut find = redis::cmd("KEYS");
    let names: Vec<Vec<u8>> = find.arg(format!("*{namespace}*")).query_async(&mut connection).await?;
    ensure!(u64::try_from(names.len())? == keys, "{} keys instead of {keys}", names.len());
    let mut bytes = 0;
    for name in names {
        let mut usage = redis::cmd("MEMORY");
        bytes += usage.arg("USAGE").arg(name).query_async::<u64>(&mut connection).await?;
    }
    Ok(bytes)
}
