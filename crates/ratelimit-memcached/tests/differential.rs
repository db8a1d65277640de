//! Compares the store with core: random slices, one by one and in batches, decided by both, verdict by verdict.

mod common;

use std::time::Duration;

use ratelimit_memcached::MemcachedStore;
use ratelimit_testbed::differential::Differential;

#[tokio::test]
async fn the_store_decides_as_core_does() {
    let server = common::Server::start(&["-m", "256"]).await;
    // The test's clock is not the server's: nothing may expire during the test.
    let config = server.config().clock_slack(Duration::from_secs(86_400));
    let store = MemcachedStore::connect_with(config).await.unwrap();
    // The clock never goes back: a window cannot detect that a claim is late.
    Differential::new(store, Duration::ZERO).histories(600, 60).await;
    assert_eq!(server.stat("evictions"), 0);
}
