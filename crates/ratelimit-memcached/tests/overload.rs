//! More checks on one key than can be served.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::limiter;
use ratelimit_core::CheckError;
use ratelimit_memcached::MemcachedStore;
use ratelimit_testbed::{SlowProxy, at_some_scale, paced};

/// The time limit of a check.
const TIMEOUT: Duration = Duration::from_millis(600);

/// The duration of a round trip. A check on a bucket or log takes two, one after another, so 25 can be answered each second.
const TRIP: Duration = Duration::from_millis(20);

/// A hundred checks each second, four times as many.
const PACE: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_meter_is_served_at_its_capacity_on_one_connection() {
    let server = common::Server::start(&[]).await;
    for limit in ["1000000/h burst 1000000", "100000/h log"] {
        at_some_scale(async |scale| overloaded(&server, limit, scale).await).await;
    }
}

async fn overloaded(server: &common::Server, limit: &str, scale: u32) -> Result<(), String> {
    let proxy = SlowProxy::start(server.address().parse().unwrap(), TRIP * scale).await.unwrap();
    let config = common::config(&proxy.address().to_string()).connections(1).timeout(TIMEOUT * scale);
    let store = MemcachedStore::connect_with(config).await.map_err(|error| error.to_string())?;
    let limiter = Arc::new(limiter(&store, limit));
    let checks = paced(PACE * scale, 400, || {
        let limiter = limiter.clone();
        async move {
            match limiter.check("k").await {
                Ok(decision) => assert!(decision.allowed()),
                Err(CheckError::Store(error)) => return Some(error.to_string()),
                Err(error) => panic!("{error}"),
            }
            None
        }
    });
    // The queue has filled during the first half.
    let (mut answered, mut failure) = (0, None);
    for check in checks.await.split_off(200) {
        match check {
            None => answered += 1,
            failed => failure = failed,
        }
    }
    let accepted = proxy.accepted();
    let figures = format!("{limit}: {answered} of 200 were answered, {accepted} connections; {failure:?}");
    println!("{figures}");
    if answered >= 15 && accepted <= 3 { Ok(()) } else { Err(figures) }
}
