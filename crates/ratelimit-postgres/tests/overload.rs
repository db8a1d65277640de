//! More checks than the server can answer.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::Schema;
use ratelimit_core::{CheckError, Limit, RateLimiter};
use ratelimit_postgres::PostgresStore;
use ratelimit_testbed::{SlowProxy, at_some_scale, paced};

/// The time limit of a call.
const TIMEOUT: Duration = Duration::from_millis(600);

/// The duration of a round trip. Each carries two calls, so less than 40 can be answered each second.
const TRIP: Duration = Duration::from_millis(50);

/// 100 calls each second, of 64 checks each.
const PACE: Duration = Duration::from_millis(10);
const CHECKS: u32 = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_server_answers_at_its_capacity_and_charges_what_it_answers() {
    let schema = Schema::new();
    let patient = schema.store().await;
    at_some_scale(async |scale| overloaded(&schema, &patient, scale).await).await;
}

async fn overloaded(schema: &Schema, patient: &PostgresStore, scale: u32) -> Result<(), String> {
    let limit: Limit = "1000000/d fixed".parse().unwrap();
    let mut config = schema.config().connections(1).timeout(TIMEOUT * scale).migrate(false);
    let there = SocketAddr::from((Ipv4Addr::LOCALHOST, config.server.get_port()));
    let proxy = SlowProxy::start(there, TRIP * scale).await.unwrap();
    config.server = config.server.host("127.0.0.1").port(proxy.address().port());
    // Connecting takes almost as many trips as the time limit has.
    let mut connected = Err("it was not tried".to_owned());
    for _ in 0..10 {
        connected = PostgresStore::connect_with(config.clone()).await.map_err(|error| error.to_string());
        if connected.is_ok() {
            break;
        }
    }
    let store = connected?;
    let limiter = Arc::new(RateLimiter::new(store, limit.clone()));
    let keys: Arc<Vec<String>> = Arc::new((0..CHECKS).map(|nth| format!("key {scale} {nth}")).collect());
    let calls = paced(PACE * scale, 400, || {
        let (limiter, keys) = (limiter.clone(), keys.clone());
        async move {
            for answer in limiter.check_many(keys.iter().map(String::as_str)).await {
                match answer {
                    Ok(decision) => assert!(decision.allowed()),
                    Err(CheckError::Store(error)) => return Some(error.to_string()),
                    Err(error) => panic!("{error}"),
                }
            }
            None
        }
    });
    let (mut answered, mut failure) = ([0, 0], None);
    for (nth, call) in calls.await.into_iter().enumerate() {
        match call {
            None => answered[nth / 200] += 1,
            failed => failure = failed,
        }
    }
    let patient = RateLimiter::new(patient, limit);
    let charged = 1_000_000 - patient.peek(keys[0].as_str()).await.unwrap().remaining();
    let figures = format!("{answered:?} of 200 each were answered, {charged} charged; {failure:?}");
    println!("{figures}");
    assert!(charged >= answered[0] + answered[1], "{figures}");
    // The queue has filled during the first half.
    let serves = answered[1] >= 15 && charged <= 2 * (answered[0] + answered[1]);
    if serves { Ok(()) } else { Err(figures) }
}
