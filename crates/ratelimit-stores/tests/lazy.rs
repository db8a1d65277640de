//! A program that starts while its server is down: the fallback decides, and the server takes over when it comes up.
#![allow(clippy::disallowed_methods)] // deadlines are kept on the machine's clock

use std::time::{Duration, Instant};

use ratelimit_stores::core::layers::Resilience;
use ratelimit_stores::core::{ErrorKind, Limit, RateLimiter};
use ratelimit_testbed::{Memcached, Postgres, Redis, Server, Testbed};

/// No machine is so slow that the server does not take over within this time.
const PATIENCE: Duration = Duration::from_secs(60);

async fn starts_without_the_server(server: &Server) {
    let url = server.url();
    let error = ratelimit_stores::connect(url).await.expect_err("nothing listens there");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");

    let fallback = ratelimit_stores::lazy("memory:").unwrap();
    let store = Resilience::new(ratelimit_stores::lazy(url).unwrap())
        .timeout(Duration::from_secs(10))
        .fallback(fallback, 4);
    let limiter = RateLimiter::new(store, "8/h".parse::<Limit>().unwrap());
    for allowed in [true, true, false] {
        let decision = limiter.check("user:7").await.unwrap();
        assert_eq!((decision.allowed(), decision.degraded()), (allowed, true), "a quarter of eight");
    }

    server.start().await.unwrap();
    let since = Instant::now();
    let decision = loop {
        let decision = limiter.check("user:8").await.unwrap();
        if !decision.degraded() {
            break decision;
        }
        assert!(since.elapsed() < PATIENCE, "the server does not take over: {decision:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((decision.allowed(), decision.remaining()), (true, 7), "the whole limit counts on the server");
}

#[tokio::test]
async fn redis() {
    let server = Testbed::from_env().redis_with(Redis::default()).await.unwrap();
    server.kill().await.unwrap();
    starts_without_the_server(&server).await;
}

#[tokio::test]
async fn memcached() {
    let server = Testbed::from_env().memcached_with(Memcached::default()).await.unwrap();
    server.kill().await.unwrap();
    starts_without_the_server(&server).await;
}

#[tokio::test]
async fn postgres() {
    let server = Testbed::from_env().postgres_with(Postgres::default()).await.unwrap();
    // Nobody has created the table: the store does, once the server is up.
    server.kill().await.unwrap();
    starts_without_the_server(&server).await;
}

#[tokio::test]
async fn mistakes_in_the_address_are_found_at_once() {
    for url in [
        "http://:s3cret@host",
        "memory:?s3cret=1",
        "redis://:s3cret@host/?timout=1s",
        "postgres://u:s3cret@h/?x=1",
    ] {
        let connected =
            ratelimit_stores::connect(url).await.err().unwrap_or_else(|| panic!("{url} is accepted"));
        let error = ratelimit_stores::lazy(url).err().unwrap_or_else(|| panic!("{url} is accepted"));
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Misconfigured, connected.to_string()));
    }
}
