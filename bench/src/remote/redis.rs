//! Redis: ours compared with bare scripts on the same client, over one connection each.

use anyhow::{Context as _, Result, bail, ensure};
use ratelimit_core::{Clock as _, Limit, RateLimiter, SystemClock};
use ratelimit_redis::{RedisConfig, RedisStore};
use redis::aio::MultiplexedConnection;

use super::load::{Chooser, Load, PATIENCE, Remote};
use super::ours::Ours;
use super::store::{LogFamily, Store};
use super::{redis_connection, redis_log};
use crate::session::{Session, figure};

pub(super) const STORE: Store = Store {
    name: "redis",
    title: "Redis",
    contestants: &[
        "ours",
        "ours, unshared calls",
        "ours, batches of 32",
        "bare EVALSHA",
        "bare window script",
        "limitador",
    ],
    baseline: "bare EVALSHA",
    log: Some(LogFamily { name: "redis-log", weigh: redis_log::open }),
    open,
};

fn open(contestant: &str, url: &str, millis: u64) -> Result<Box<dyn Session>> {
    match contestant {
        "ours" => Load::open(ours(url, 1), millis),
        "ours, unshared calls" => Load::open(unshared(url), millis),
        "ours, batches of 32" => Load::open(ours(url, 32), millis),
        "bare EVALSHA" => Load::open(Bare::connect(url, COUNT), millis),
        "bare window script" => Load::open(Bare::connect(url, WINDOW), millis),
        #[cfg(feature = "peers")]
        "limitador" => Load::open(super::limitador::connect(url), millis),
        unknown => bail!("there is no contestant {unknown:?} on Redis in this program"),
    }
}

async fn ours(url: &str, batch: usize) -> Result<Ours<RedisStore>> {
    open_with(RedisConfig::from_url(url)?.timeout(PATIENCE), batch).await
}

/// Each check is a separate call.
async fn unshared(url: &str) -> Result<Ours<RedisStore>> {
    open_with(RedisConfig::from_url(url)?.timeout(PATIENCE).batch(None), 1).await
}

async fn open_with(config: RedisConfig, batch: usize) -> Result<Ours<RedisStore>> {
    let limit: Limit = "1000000000/h".parse()?;
    Ok(Ours { limiter: RateLimiter::new(RedisStore::connect_with(config).await?, limit), batch })
}

/// A bare script.
struct Bare {
    connection: MultiplexedConnection,
    hash: String,
    script: Script,
    clock: SystemClock,
}

/// The script of a bare contestant.
#[derive(Clone, Copy)]
struct Script {
    /// The prefix of the keys.
    prefix: &'static str,
    keys: usize,
    text: &'static str,
}

/// The minimum that counts: a fixed window.
const COUNT: Script = Script {
    prefix: "bare-count:",
    keys: 1,
    text: "local count = redis.call('INCR', KEYS[1]) \
           if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end \
           return count",
};

/// A sliding window in floating point, as commonly written: it reads one window, counts in another, and sets an expiry.
const WINDOW: Script = Script {
    prefix: "bare-window:",
    keys: 2,
    text: "local previous = tonumber(redis.call('GET', KEYS[1]) or '0') \
           local count = redis.call('INCRBY', KEYS[2], 1) \
           redis.call('PEXPIRE', KEYS[2], ARGV[1]) \
           return math.floor(previous * ARGV[2] + count)",
};

const PERIOD_MILLIS: u64 = 3_600_000;

impl Bare {
    async fn connect(url: &str, script: Script) -> Result<Self> {
        let mut connection = redis_connection::connect(url).await?;
        let mut load = redis::cmd("SCRIPT");
        let hash =
            load.arg("LOAD").arg(script.text).query_async(&mut connection).await.context("SCRIPT LOAD")?;
        Ok(Self { connection, hash, script, clock: SystemClock::new() })
    }
}

impl Remote for Bare {
    async fn call(&self, keys: &mut Chooser) -> Result<u64> {
        let Script { prefix, keys: count, .. } = self.script;
        let millis = self.clock.now().as_nanos() / 1_000_000;
        let (window, passed) = (millis / PERIOD_MILLIS, millis % PERIOD_MILLIS);
        let key = keys.one();
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.hash).arg(count);
        if count == 2 {
            call.arg(format!("{prefix}{{{key}}}:{}", window - 1));
        }
        call.arg(format!("{prefix}{{{key}}}:{window}")).arg(2 * PERIOD_MILLIS);
        if count == 2 {
            call.arg(format!("{:.3}", 1.0 - figure(passed) / figure(PERIOD_MILLIS)));
        }
        let mut connection = self.connection.clone();
        let counted: u64 = call.query_async(&mut connection).await?;
        ensure!(counted > 0, "it was not counted");
        Ok(1)
    }
}
