//! More checks than the server can answer.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::Schema;
use ratelimit_core::{CheckError, Limit, RateLimiter};
use ratelimit_postgres::PostgresStore;
use ratelimit_testbed::{SlowProxy, paced};

/// The duration of a round trip. Each carries two calls, so less than 40 can be answered each second.
const TRIP: Duration = Duration::from_millis(50);

/// 100 calls each second, of 64 checks each.
const PACE: Duration = Duration::from_millis(10);
const CHECKS: u32 = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_server_answers_at_its_capacity_and_charges_what_it_answers() {
    let schema = Schema::new();
    schema.store().await;
    let mut config = schema.config().connections(1).timeout(Duration::from_millis(600));
    let there = SocketAddr::from((Ipv4Addr::LOCALHOST, config.server.get_port()));
    let proxy = SlowProxy::start(there, TRIP).await.unwrap();
    config.server = config.server.host("127.0.0.1").port(proxy.address().port());
    let store = PostgresStore::connect_with(config).await.unwrap();
    let limiter = Arc::new(RateLimiter::new(store, "1000000/d fixed".parse::<Limit>().unwrap()));
    let keys: Arc<Vec<String>> = Arc::new((0..CHECKS).map(|nth| format!("key {nth}")).collect());
    let calls = paced(PACE, 400, || {
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
    let charged = 1_000_000 - limiter.peek(keys[0].as_str()).await.unwrap().remaining();
    println!("{answered:?} of 200 each were answered, {charged} charged; {failure:?}");
    // The queue has filled during the first half.
    assert!(answered[1] >= 15, "{answered:?} were answered; {failure:?}");
    assert!(charged <= 2 * (answered[0] + answered[1]), "{charged} were charged, {answered:?} answered");
}
