//! The cost of each kind of connection: TCP, a Unix socket, TLS, several servers, and the classic protocol through a pool.
//!
//! `cargo bench -p ratelimit-memcached --all-features --bench connections`: they take turns, medians of 9 rounds.
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss, missing_docs)]

#[path = "../tests/common/ways.rs"]
#[allow(dead_code)]
mod ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ratelimit_core::{Limit, RateLimiter};
use ratelimit_memcached::{Distribution, MemcachedConfig, MemcachedStore};
use ratelimit_testbed::{Memcached, Server, Testbed};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(700);
const CALLERS: [usize; 2] = [1, 128];
const KEYS: usize = 1_000;

struct Way {
    name: &'static str,
    limiter: Arc<RateLimiter<MemcachedStore>>,
    _servers: Vec<Server>,
    rates: [Vec<f64>; 2],
}

impl Way {
    async fn new(
        name: &'static str,
        way: Memcached,
        prepare: impl FnOnce(MemcachedConfig) -> MemcachedConfig,
    ) -> Self {
        let server = Testbed::from_env().memcached_with(way).await.unwrap();
        let config =
            prepare(MemcachedConfig::from_url(server.url()).unwrap().timeout(Duration::from_secs(10)));
        let store = MemcachedStore::connect_with(config).await.unwrap();
        Self::of(name, store, vec![server])
    }

    fn of(name: &'static str, store: MemcachedStore, servers: Vec<Server>) -> Self {
        let limit: Limit = "1000000000/h".parse().unwrap();
        let limiter = Arc::new(RateLimiter::new(store, limit));
        Self { name, limiter, _servers: servers, rates: Default::default() }
    }

    /// The store's own client on three servers.
    async fn three(name: &'static str, distribution: Distribution) -> Self {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(Testbed::from_env().memcached_with(Memcached::default()).await.unwrap());
        }
        let addresses: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
        let config = MemcachedConfig::from_url(&format!("memcached://{}", addresses.join(","))).unwrap();
        let config = config.timeout(Duration::from_secs(10)).distribution(distribution);
        Self::of(name, MemcachedStore::connect_with(config).await.unwrap(), servers)
    }

    /// The classic protocol through a pool of 16 connections.
    #[cfg(feature = "memcache")]
    async fn classic(name: &'static str) -> Self {
        let server = Testbed::from_env().memcached_with(Memcached::default()).await.unwrap();
        let manager = ratelimit_memcached::MemcacheManager::new(&server.address().to_string()).unwrap();
        let pool = ratelimit_memcached::MemcachePool::builder(manager).max_size(16).build().unwrap();
        let config = MemcachedConfig::default().timeout(Duration::from_secs(10));
        Self::of(name, MemcachedStore::with_pool(pool, config).unwrap(), vec![server])
    }

    /// Decisions per second.
    async fn round(&self, callers: usize) -> f64 {
        let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let since = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (limiter, over, count) = (self.limiter.clone(), over.clone(), count.clone());
                tokio::spawn(async move {
                    let mut nth = caller * 7_919;
                    while !over.load(Ordering::Relaxed) {
                        let key = format!("user:{}", nth % KEYS);
                        assert!(limiter.check(&key).await.unwrap().allowed());
                        nth += 1;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tokio::time::sleep(ROUND).await;
        over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
        count.load(Ordering::Relaxed) as f64 / since.elapsed().as_secs_f64()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    let (socket, _folder) = ways::socket();
    let mut ways = vec![
        Way::new("TCP", Memcached::default(), |config| config).await,
        Way::new("Unix socket", socket, |config| config).await,
    ];
    ways.push(Way::three("three servers", Distribution::default()).await);
    ways.push(Way::three("three, ketama", Distribution::Ketama).await);
    #[cfg(feature = "memcache")]
    ways.push(Way::classic("classic").await);
    #[cfg(feature = "tls")]
    {
        let way = ways::tls();
        ways.push(Way::new("TLS", way.clone(), |config| ways::with_certificates(config, &way)).await);
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            for (rates, callers) in CALLERS.iter().enumerate() {
                let rate = way.round(*callers).await;
                way.rates[rates].push(rate);
            }
        }
    }
    println!("{:14} {:>15} {:>15}   decisions/s, sliding window", "", "1 caller", "128 callers");
    for way in &mut ways {
        let [one, many] = way.rates.each_mut().map(|rates| median(rates));
        println!("{:14} {one:>15.0} {many:>15.0}", way.name);
    }
}
