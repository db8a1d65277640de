//! The cost of a decision, next to the cheapest possible script call on the same server.
//!
//! `cargo bench -p ratelimit-redis --bench decisions [-- SECONDS]`: contestants take turns, medians of 21 rounds. With the
//! argument `ways`, the store's own client next to connections and pools of the program, TLS and Sentinel, on one server and
//! on a cluster (`--all-features`).
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss, missing_docs)]

#[path = "../tests/common/ways.rs"]
mod ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Limit, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};
#[cfg(feature = "tls")]
use ratelimit_testbed::{Certificates, Tls};
use ratelimit_testbed::{Redis, Settings, Testbed};
use redis::aio::MultiplexedConnection;
use ways::Way;

const ROUNDS: usize = 21;
const KEYS: u64 = 1_000;

/// The simplest counter with a lifetime.
const LEAST: &str = "local n = redis.call('INCR', KEYS[1]) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return n";

/// A fixed window as it is commonly written.
const WINDOW: &str = "local n = tonumber(redis.call('GET', KEYS[1]) or '0') \
    if n + tonumber(ARGV[3]) > tonumber(ARGV[1]) then return {0, n, redis.call('PTTL', KEYS[1])} end \
    n = redis.call('INCRBY', KEYS[1], ARGV[3]) \
    if n == tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
    return {1, n, redis.call('PTTL', KEYS[1])}";

#[derive(Clone)]
enum Contestant {
    Bare { hash: String, arguments: &'static [&'static str], lines: Vec<MultiplexedConnection> },
    Ours { store: RedisStore, limit: Limit, batch: usize },
}

impl Contestant {
    fn decisions(&self) -> u64 {
        if let Self::Ours { batch, .. } = self { *batch as u64 } else { 1 }
    }

    async fn once(&self, nth: u64) {
        match self {
            Self::Bare { hash, arguments, lines } => {
                let mut call = redis::cmd("EVALSHA");
                call.arg(hash).arg(1).arg(format!("rl:{{:user:{}}}{}", nth % KEYS, arguments.len()));
                for argument in *arguments {
                    call.arg(argument);
                }
                let mut line = lines[usize::try_from(nth).unwrap_or_default() % lines.len()].clone();
                line.send_packed_command(&call).await.unwrap();
            }
            Self::Ours { store, limit, batch } => {
                let now = Timestamp::from_nanos(
                    u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap_or_default(),
                );
                let keys: Vec<_> =
                    (0..*batch as u64).map(|at| format!("user:{}", (nth * 31 + at) % KEYS)).collect();
                let claims: Vec<_> = keys
                    .iter()
                    .map(|key| {
                        let id = MeterId { namespace: "", scope: limit.scope(), key: key.as_bytes() };
                        [Claim { id, cost: 1, meter: limit.meter_for(key.as_bytes()) }]
                    })
                    .collect();
                let slices: Vec<_> =
                    claims.iter().map(|claim| Claims::new(now, Mode::Charge, claim).unwrap()).collect();
                if let [slice] = slices.as_slice() {
                    store.claim(*slice).await.unwrap();
                } else {
                    assert!(store.claim_many(&slices).await.iter().all(Result::is_ok));
                }
            }
        }
    }

    /// Decisions per second, and the nanoseconds that each took on the server.
    async fn round(
        &self,
        concurrency: u64,
        length: Duration,
        server: &mut MultiplexedConnection,
    ) -> [f64; 2] {
        let before = script_time(server).await;
        let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let since = Instant::now();
        let tasks: Vec<_> = (0..concurrency)
            .map(|task| {
                let (this, over, count) = (self.clone(), over.clone(), count.clone());
                tokio::spawn(async move {
                    let mut nth = task * 7_919;
                    while !over.load(Ordering::Relaxed) {
                        this.once(nth).await;
                        nth += 1;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tokio::time::sleep(length).await;
        over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
        let decisions = (count.load(Ordering::Relaxed) * self.decisions()) as f64;
        let seconds = since.elapsed().as_secs_f64();
        [decisions / seconds, (script_time(server).await - before) * 1_000.0 / decisions]
    }
}

/// Microseconds spent in scripts so far.
async fn script_time(server: &mut MultiplexedConnection) -> f64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(server).await.unwrap();
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    let micros = line.and_then(|line| line.split("usec=").nth(1)).and_then(|rest| rest.split(',').next());
    micros.and_then(|micros| micros.parse().ok()).unwrap_or_default()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn bare(
    client: &redis::Client,
    script: &str,
    arguments: &'static [&'static str],
    connections: usize,
) -> Contestant {
    let mut lines = Vec::new();
    for _ in 0..connections {
        lines.push(client.get_multiplexed_async_connection().await.unwrap());
    }
    let hash = redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut lines[0]).await.unwrap();
    Contestant::Bare { hash, arguments, lines }
}

async fn ours(url: &str, limit: &str, batch: usize, connections: usize) -> Contestant {
    let config = RedisConfig::from_url(url).unwrap().connections(connections).timeout(Duration::from_secs(5));
    let store = RedisStore::connect_with(config).await.unwrap();
    Contestant::Ours { store, limit: limit.parse().unwrap(), batch }
}

async fn compare(url: &str, concurrency: u64, connections: usize, length: Duration) {
    use redis::IntoConnectionInfo;
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(url.into_connection_info().unwrap().set_tcp_settings(tcp)).unwrap();
    let mut server = client.get_multiplexed_async_connection().await.unwrap();
    let mut contestants = vec![
        ("least script (INCR, PEXPIRE)".to_owned(), bare(&client, LEAST, &["60000"], connections).await),
        (
            "window of three calls".to_owned(),
            bare(&client, WINDOW, &["100000000", "60000", "1"], connections).await,
        ),
    ];
    for limit in ["100000000/min fixed", "100000000/min", "100000/s bucket"] {
        contestants.push((format!("ours {limit}"), ours(url, limit, 1, connections).await));
    }
    if std::env::var_os("RATELIMIT_BENCH_ALL").is_some() {
        for limit in ["100000000/h precision 1min", "100/s log"] {
            contestants.push((format!("ours {limit}"), ours(url, limit, 1, connections).await));
        }
    }
    for batch in [32, 128] {
        for limit in ["100000000/min", "100000/s bucket"] {
            contestants
                .push((format!("ours {limit} by {batch}"), ours(url, limit, batch, connections).await));
        }
    }
    let medians = medians(&contestants, concurrency, length, &mut server).await;
    println!("\n{concurrency} callers, {connections} connections");
    println!("{:<36} {:>12} {:>9} {:>9} {:>12}", "", "decisions/s", "x least", "x window", "server ns");
    for ((name, _), [rate, server_time]) in contestants.iter().zip(&medians) {
        let [least, window] = [rate / medians[0][0], rate / medians[1][0]];
        println!("{name:<36} {rate:>12.0} {least:>9.2} {window:>9.2} {server_time:>12.0}");
    }
}

/// The ways of connecting, to one server and to a cluster, next to the store's own client.
async fn compare_ways(testbed: &Testbed, length: Duration) {
    let server = testbed.redis_with(Redis::default()).await.unwrap();
    let url = server.url().to_owned();
    let mut single = Vec::new();
    for (name, way) in [
        ("own client", Way::Own),
        ("MultiplexedConnection", Way::Connection),
        ("ConnectionManager", Way::Manager),
        #[cfg(feature = "deadpool")]
        ("deadpool of 16", Way::Pool),
    ] {
        single.push(by(name, way, config(&url), std::slice::from_ref(&url)).await);
    }
    let sentinel = testbed.redis_sentinel(Duration::from_secs(5)).await.unwrap();
    single.push(by("own client, Sentinel", Way::Own, config(&sentinel.url()), &[]).await);
    #[cfg(feature = "tls")]
    let tls = Tls::new(Certificates::new().unwrap());
    #[cfg(feature = "tls")]
    let trusting = |url: &str| config(url).authorities(std::fs::read(tls.certificates.authority()).ok());
    #[cfg(feature = "tls")]
    let encrypted = testbed.redis_with(Redis { tls: Some(tls.clone()), ..Redis::default() }).await.unwrap();
    #[cfg(feature = "tls")]
    single.push(by("own client, TLS", Way::Own, trusting(encrypted.url()), &[]).await);
    compare_with_first("one server", &single, &url, length).await;

    let cluster = testbed.redis_cluster().await.unwrap();
    let (url, urls) = (cluster.url(), cluster.urls());
    let mut several = Vec::new();
    for (name, way) in [
        ("own client", Way::Own),
        ("ClusterConnection", Way::ClusterConnection),
        #[cfg(feature = "deadpool")]
        ("deadpool of 16", Way::ClusterPool),
    ] {
        several.push(by(name, way, config(&url), &urls).await);
    }
    #[cfg(feature = "tls")]
    let encrypted =
        testbed.redis_cluster_with(Redis { tls: Some(tls.clone()), ..Redis::default() }).await.unwrap();
    #[cfg(feature = "tls")]
    several.push(by("own client, TLS", Way::Own, trusting(&encrypted.url()), &[]).await);
    compare_with_first("a cluster of three", &several, &urls[0], length).await;
}

fn config(url: &str) -> RedisConfig {
    RedisConfig::from_url(url).unwrap().timeout(Duration::from_secs(5))
}

async fn by(name: &str, way: Way, config: RedisConfig, urls: &[String]) -> (String, Contestant) {
    let urls = if urls.is_empty() { &["none".to_owned()] } else { urls };
    let store = way.open(&config, urls).await.unwrap();
    (name.to_owned(), Contestant::Ours { store, limit: "100000000/min".parse().unwrap(), batch: 1 })
}

async fn compare_with_first(
    title: &str,
    contestants: &[(String, Contestant)],
    server: &str,
    length: Duration,
) {
    let client = redis::Client::open(server).unwrap();
    let mut server = client.get_multiplexed_async_connection().await.unwrap();
    for callers in [1, 16, 128] {
        let medians = medians(contestants, callers, length, &mut server).await;
        println!("\n{title}, {callers} callers");
        println!("{:<36} {:>12} {:>9}", "", "decisions/s", "x own");
        for ((name, _), [rate, _]) in contestants.iter().zip(&medians) {
            println!("{name:<36} {rate:>12.0} {:>9.2}", rate / medians[0][0]);
        }
    }
}

/// For each: decisions per second, and the nanoseconds that one took on the server.
async fn medians(
    contestants: &[(String, Contestant)],
    concurrency: u64,
    length: Duration,
    server: &mut MultiplexedConnection,
) -> Vec<[f64; 2]> {
    let mut results = vec![[Vec::new(), Vec::new()]; contestants.len()];
    for round in 0..=ROUNDS {
        for ((_, contestant), results) in contestants.iter().zip(&mut results) {
            // Batches keep the server as busy with fewer callers.
            let callers = (concurrency / contestant.decisions()).max(if concurrency > 1 { 4 } else { 1 });
            let [rate, server_time] = contestant.round(callers, length, server).await;
            if round > 0 {
                results[0].push(rate);
                results[1].push(server_time);
            }
        }
    }
    results.into_iter().map(|values| values.map(median)).collect()
}

#[tokio::main]
async fn main() {
    let length = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(0.1);
    let length = Duration::from_secs_f64(length);
    let testbed = Testbed::new(Settings { addresses: Default::default(), ..Settings::from_env() });
    if std::env::args().any(|argument| argument == "ways") {
        compare_ways(&testbed, length).await;
        return;
    }
    let server = testbed.redis_with(Redis::default()).await.unwrap_or_else(|error| panic!("{error}"));
    for (callers, connections) in [(1, 1), (128, 1), (128, 4)] {
        compare(server.url(), callers, connections, length).await;
    }
}
