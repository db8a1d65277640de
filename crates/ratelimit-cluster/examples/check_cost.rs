//! The cost of a check on `Synced` and `Leased` compared with the memory store: one thread, 100,000 active keys. Also the network
//! traffic of an interval, and its duration with one batch in flight and with several.
//!
//! Each pass checks all keys, and the stores take turns, so that the caches are the same for all. The result is the tenth
//! percentile of all passes, because other work of the machine only adds to the times. Synchronization between passes is not
//! included: in a service, another thread does it.
//!
//! `cargo run --release -p ratelimit-cluster --example check_cost`
#![allow(clippy::disallowed_methods, reason = "measures how long checks take")]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use ratelimit_cluster::{Leased, SyncConfig, Synced};
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{CounterStore, Limit, ManualClock, RateLimiter, StoreError, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::Testbed;

const KEYS: u64 = 100_000;
const PASSES: usize = 60;
const INTERVAL: Duration = Duration::from_secs(1);
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Counts the trips that a server would have seen.
#[derive(Debug, Default)]
struct Counting(MemoryStore, AtomicU64);

impl CounterStore for Counting {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let memory = limiter(MemoryStore::new());
    let leased = limiter(Leased::new(Counting::default()));
    let synced = limiter(Synced::new(Counting::default()));
    let mut took = [const { Vec::new() }; 3];
    let mut told = Instant::now();
    for nth in 0..PASSES {
        // In turn, so that what else the machine does falls on all of them.
        let each = [pass(&memory, &keys), pass(&leased, &keys), pass(&synced, &keys)];
        if told.elapsed() >= INTERVAL {
            block_on(synced.store().sync(NOW))?;
            told = Instant::now();
        }
        if nth >= PASSES / 6 {
            took.iter_mut().zip(each).for_each(|(all, each)| all.push(each));
        }
    }
    let [memory, leased_took, synced_took] = took.map(fastest);
    println!("memory: {memory:.0} ns a check");
    let share = |took: f64| 100.0 * took / memory;
    let trips = leased.store().inner().1.load(Ordering::Relaxed);
    let checks = KEYS * PASSES as u64;
    println!(
        "leased: {leased_took:.0} ns, {:.0} % of memory's; {trips} trips for {checks} checks",
        share(leased_took)
    );
    let trips = synced.store().inner().1.load(Ordering::Relaxed);
    println!(
        "synced: {synced_took:.0} ns, {:.0} % of memory's; {trips} trips for {checks} checks",
        share(synced_took)
    );
    on_redis(&keys)
}

/// What an interval costs when all keys were charged in it, on a Redis server.
fn on_redis(keys: &[String]) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let server = Testbed::from_env().redis().await?;
        let mut connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
        for at_once in [1, 2, 4, 8] {
            let prefix = format!("check-cost-{}-{at_once}:", std::process::id());
            let config = RedisConfig::from_url(server.url())?.prefix(prefix).timeout(Duration::from_secs(30));
            let shared = RedisStore::connect_with(config).await?;
            let synced =
                limiter(Synced::with_config(shared, SyncConfig::default().concurrent_batches(at_once)));
            println!("sending {KEYS} keys to Redis, {at_once} batches at once:");
            // In the first three the segment before is read, too.
            for nth in 0..6 {
                pass(&synced, keys);
                let before = bytes(&mut connection).await?;
                let began = Instant::now();
                synced.store().sync(NOW + nth * INTERVAL).await?;
                let took = began.elapsed();
                let after = bytes(&mut connection).await?;
                let (there, back) = ((after.0 - before.0) / KEYS, (after.1 - before.1) / KEYS);
                println!("  {took:.2?}, {there} bytes there and {back} back for each");
            }
        }
        Ok(())
    })
}

/// What the server has received and sent.
async fn bytes(connection: &mut redis::aio::MultiplexedConnection) -> Result<(u64, u64), Box<dyn Error>> {
    let told: String = redis::cmd("INFO").arg("stats").query_async(connection).await?;
    let find = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    let all = find("total_net_input_bytes:").zip(find("total_net_output_bytes:"));
    all.ok_or_else(|| "the server does not count its bytes".into())
}

fn limiter<S: CounterStore>(store: S) -> RateLimiter<S, ManualClock> {
    let limit: Limit = "10000/h".parse().expect("a limit");
    RateLimiter::new(store, limit).with_clock(ManualClock::at(NOW))
}

/// Checks each key once; gives how many nanoseconds a check took.
#[allow(clippy::cast_precision_loss)]
fn pass<S: CounterStore>(limiter: &RateLimiter<S, ManualClock>, keys: &[String]) -> f64 {
    let began = Instant::now();
    for key in keys {
        assert!(block_on(limiter.check(key)).expect("an answer").allowed());
    }
    began.elapsed().as_nanos() as f64 / KEYS as f64
}

/// The tenth percentile.
fn fastest(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 10]
}
