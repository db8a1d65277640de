//! More checks than the server can answer, at once or in one call.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::layers::BatchConfig;
use ratelimit_core::store::Applied;
use ratelimit_core::{CheckError, ErrorKind, Limit, RateLimiter};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::{SlowProxy, at_some_scale, paced};

/// The time limit of a check.
const TIMEOUT: Duration = Duration::from_millis(600);

/// The duration of a round trip. Each carries four checks, one after another, so 80 can be answered each second.
const TRIP: Duration = Duration::from_millis(50);

/// 200 checks each second.
const PACE: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_server_answers_at_its_capacity_and_charges_what_it_answers() {
    let server = common::Server::start(&[]).await;
    at_some_scale(async |scale| overloaded(&server, scale).await).await;
}

async fn overloaded(server: &common::Server, scale: u32) -> Result<(), String> {
    let (key, limit): (_, Limit) = (format!("key {scale}"), "1000000/d fixed".parse().unwrap());
    let there = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port));
    let proxy = SlowProxy::start(there, TRIP * scale).await.unwrap();
    let batch = BatchConfig::default().concurrent_batches(1).batch_size(4).unbatched(0);
    let config = RedisConfig::from_url(&format!("redis://{}/", proxy.address())).unwrap();
    let config = config.timeout(TIMEOUT * scale).batch(batch);
    let store = RedisStore::connect_with(config).await.map_err(|error| error.to_string())?;
    let limiter = Arc::new(RateLimiter::new(store, limit.clone()));
    let checks = paced(PACE * scale, 800, || {
        let (limiter, key) = (limiter.clone(), key.clone());
        async move {
            match limiter.check(&key).await {
                Ok(decision) => assert!(decision.allowed()),
                Err(CheckError::Store(error)) => return Some(error.to_string()),
                Err(error) => panic!("{error}"),
            }
            None
        }
    });
    let (mut answered, mut failure) = ([0, 0], None);
    for (nth, check) in checks.await.into_iter().enumerate() {
        match check {
            None => answered[nth / 400] += 1,
            failed => failure = failed,
        }
    }
    let patient = format!("{}?timeout=60s", server.url());
    let patient = RateLimiter::new(RedisStore::connect(&patient).await.unwrap(), limit);
    let charged = 1_000_000 - patient.peek(&key).await.unwrap().remaining();
    let figures = format!("{answered:?} of 400 each were answered, {charged} charged; {failure:?}");
    println!("{figures}");
    assert!(charged >= answered[0] + answered[1], "{figures}");
    // The queue has filled during the first half.
    let serves = answered[1] >= 50 && charged <= 2 * (answered[0] + answered[1]);
    if serves { Ok(()) } else { Err(figures) }
}

/// A call of several requests sends none of them after its time limit has passed: each would close another connection.
#[tokio::test]
async fn a_late_batch_sends_no_further_requests() {
    let server = common::Server::start(&[]).await;
    let keys: Vec<_> = (0..1_024).map(|nth| format!("key {nth}")).collect();
    for limit in ["100000/min", "100000/min log"] {
        let config = RedisConfig::from_url(&server.url()).unwrap();
        let config = config.connections(4).timeout(Duration::from_secs(2));
        let store = RedisStore::connect_with(config).await.unwrap();
        let limiter = RateLimiter::new(store, limit.parse::<Limit>().unwrap());
        server.freeze().await;
        let answers = limiter.check_many(&keys).await;
        server.thaw().await;
        for (nth, answer) in answers.into_iter().enumerate() {
            let Err(CheckError::Store(error)) = answer else { panic!("a frozen server has answered") };
            let applied = if nth < 256 { Applied::Unknown } else { Applied::No };
            assert_eq!((error.kind(), error.applied()), (ErrorKind::Timeout, applied), "{nth}: {error}");
            assert_eq!(error.address(), server.url().split('/').nth(2), "{error}");
        }
    }
}
