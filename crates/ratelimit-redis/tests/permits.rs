//! Permits of a process that is killed come back when their lease ends, and not earlier.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::Server;
use ratelimit_core::{Clock as _, Limit, RateLimiter, SystemClock};
use ratelimit_redis::RedisStore;

/// Set to the server's address in a process that the test has started.
const URL: &str = "RATELIMIT_TEST_PERMITS_URL";
/// Long enough for a renewal on a busy machine.
const LEASE: Duration = Duration::from_secs(10);

async fn limiter(url: &str) -> Arc<RateLimiter<RedisStore>> {
    let limit: Limit = "5 at once lease 10s".parse().unwrap();
    Arc::new(RateLimiter::new(RedisStore::connect(&format!("{url}?timeout=60s")).await.unwrap(), limit))
}

/// Not a test on its own: the other test runs it in another process, and kills it.
#[tokio::test(flavor = "multi_thread")]
async fn holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let limiter = limiter(&url).await;
    let mut permits = Vec::new();
    for _ in 0..3 {
        let decision = limiter.check("jobs").await.unwrap();
        assert!(decision.allowed());
        permits.push(limiter.hold(decision));
    }
    println!("\nholding");
    tokio::time::sleep(Duration::from_secs(120)).await;
    drop(permits);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_of_a_killed_process_come_back_after_the_lease() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url()).await;
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--nocapture"])
        .env(URL, server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "holding"), "the holder has ended");

    // They are renewed for longer than a lease.
    let charged = [limiter.check("jobs").await.unwrap(), limiter.check("jobs").await.unwrap()];
    let permits = charged.map(|decision| limiter.hold(decision));
    let clock = SystemClock::new();
    let begin = clock.now();
    while clock.now().since(begin) < LEASE + LEASE / 2 {
        assert!(!limiter.check("jobs").await.unwrap().allowed(), "after {:?}", clock.now().since(begin));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    holder.kill().unwrap(); // SIGKILL
    holder.wait().unwrap();
    let killed = clock.now();
    let remaining = async || limiter.peek("jobs").await.unwrap().remaining();
    while remaining().await < 3 {
        assert!(clock.now().since(killed) < LEASE * 10, "{} of 3 came back", remaining().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    // A renewal in progress takes one more.
    assert!(remaining().await <= 3, "the permits of this process are held all the while");
    drop(permits);
    while remaining().await < 5 {
        assert!(clock.now().since(killed) < LEASE * 10);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
