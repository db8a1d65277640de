//! Memcached: ours with meta commands and with the plain protocol, compared with a hand-written pipelined connection and
//! with the crate `memcache`.

use anyhow::{Result, bail, ensure};
use memcache::exp::{Arithmetic, AsyncMetaClient, Get, MetaClientBuilder};
use ratelimit_core::{Clock as _, Limit, RateLimiter, SystemClock};
use ratelimit_memcached::{MemcacheManager, MemcachePool, MemcachedConfig, MemcachedStore};

use super::load::{Chooser, Load, PATIENCE, Remote};
use super::ours::Ours;
use super::pipeline::Pipeline;
use super::store::Store;
use crate::session::Session;

pub(super) const STORE: Store = Store {
    name: "memcached",
    title: "Memcached",
    contestants: &["ours", TWO, "ours, batches of 32", PLAIN, PIPELINED, CRATE],
    baseline: PIPELINED,
    log: None,
    open,
};

/// As by default; the others with meta commands use one connection, like the one by hand.
const TWO: &str = "ours, two connections";
const PLAIN: &str = "ours, plain protocol";
const PIPELINED: &str = "one connection, pipelined by hand";
const CRATE: &str = "crate memcache, run_batch";

fn open(contestant: &str, url: &str, millis: u64) -> Result<Box<dyn Session>> {
    match contestant {
        "ours" => Load::open(ours(url, 1, 1), millis),
        TWO => Load::open(ours(url, 2, 1), millis),
        "ours, batches of 32" => Load::open(ours(url, 1, 32), millis),
        PLAIN => Load::open(plain(url), millis),
        PIPELINED => Load::open(Pipelined::connect(url), millis),
        CRATE => Load::open(Crate::connect(url), millis),
        unknown => bail!("there is no contestant {unknown:?} on Memcached in this program"),
    }
}

async fn ours(url: &str, connections: usize, batch: usize) -> Result<Ours<MemcachedStore>> {
    let config = MemcachedConfig::from_url(url)?.connections(connections).timeout(PATIENCE);
    let store = MemcachedStore::connect_with(config).await?;
    let limit: Limit = "1000000000/h".parse()?;
    Ok(Ours { limiter: RateLimiter::new(store, limit), batch })
}

/// The plain protocol, which deployments behind a proxy use; here without a proxy.
async fn plain(url: &str) -> Result<Ours<MemcachedStore>> {
    let pool = MemcachePool::builder(MemcacheManager::new(url)?).max_size(16).build()?;
    let store = MemcachedStore::with_pool(pool, MemcachedConfig::default().timeout(PATIENCE))?;
    let limit: Limit = "1000000000/h".parse()?;
    Ok(Ours { limiter: RateLimiter::new(store, limit), batch: 1 })
}

const PERIOD_SECONDS: u64 = 3_600;

/// The counters of the current and of the previous window.
fn counters(clock: &SystemClock, prefix: &str, key: &str) -> [String; 2] {
    let window = clock.now().as_nanos() / 1_000_000_000 / PERIOD_SECONDS;
    [window, window - 1].map(|window| format!("{prefix}:{key}:{window}"))
}

/// The minimum of a sliding window: add to one counter, read the other.
struct Pipelined {
    pipeline: Pipeline,
    clock: SystemClock,
}

impl Pipelined {
    async fn connect(url: &str) -> Result<Self> {
        Ok(Self { pipeline: Pipeline::connect(address(url)).await?, clock: SystemClock::new() })
    }
}

impl Remote for Pipelined {
    async fn call(&self, keys: &mut Chooser) -> Result<u64> {
        let [current, previous] = counters(&self.clock, "by-hand", keys.one());
        let commands = format!("ma {current} N{} J1 D1 v\r\nmg {previous} v\r\n", 2 * PERIOD_SECONDS);
        let [count, carried] = self.pipeline.ask(commands).await?;
        ensure!(count.is_some_and(|count| count + carried.unwrap_or(0) > 0), "it was not counted");
        Ok(1)
    }
}

/// The same two commands in a batch of the client.
struct Crate {
    client: AsyncMetaClient,
    clock: SystemClock,
}

impl Crate {
    async fn connect(url: &str) -> Result<Self> {
        // Keeps all used connections open.
        let builder = MetaClientBuilder::new().max_idle(512).io_timeout(Some(PATIENCE));
        let client = builder.connect_async(address(url)).await?;
        Ok(Self { client, clock: SystemClock::new() })
    }
}

impl Remote for Crate {
    async fn call(&self, keys: &mut Chooser) -> Result<u64> {
        let [current, previous] = counters(&self.clock, "crate", keys.one());
        let lifetime = u32::try_from(2 * PERIOD_SECONDS)?;
        let add = Arithmetic::new(current).delta(1).initial(1, lifetime);
        let replies = self.client.run_batch([add.into(), Get::new(previous).into()]).await?;
        for reply in replies {
            reply?;
        }
        Ok(1)
    }
}

fn address(url: &str) -> &str {
    url.strip_prefix("memcached://").unwrap_or(url)
}
