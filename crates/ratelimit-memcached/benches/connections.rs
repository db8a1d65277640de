//! The cost of each kind of connection: TCP, a Unix socket and TLS.
//!
//! `cargo bench -p ratelimit-memcached --features tls --bench connections`: they take turns, medians of 9 rounds.
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss, missing_docs)]

#[path = "../tests/common/ways.rs"]
#[allow(dead_code)]
mod ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ratelimit_core::{Limit, RateLimiter};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_testbed::{Memcached, Server, Testbed};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(700);
const CALLERS: [usize; 2] = [1, 128];
const KEYS: usize = 1_000;

struct Way {
    name: &'static str,
    limiter: Arc<RateLimiter<MemcachedStore>>,
    _server: Server,
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
        let limit: Limit = "1000000000/h".parse().unwrap();
        Self {
            name,
            limiter: Arc::new(RateLimiter::new(store, limit)),
            _server: server,
            rates: Default::default(),
        }
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
    println!("{:12} {:>15} {:>15}   decisions/s, sliding window", "", "1 caller", "128 callers");
    for way in &mut ways {
        let [one, many] = way.rates.each_mut().map(|rates| median(rates));
        println!("{:12} {one:>15.0} {many:>15.0}", way.name);
    }
}
