//! Counts of `Synced`: what the command can see and reset of them.

mod common;

use common::{Cli, namespace};
use ratelimit_cluster::Synced;
use ratelimit_core::{Clock as _, Limits, RateLimiter, Request, SystemClock};
use ratelimit_redis::RedisStore;
use ratelimit_testbed::Testbed;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn buckets_and_logs_are_seen_and_windows_are_said_to_be_of_synced() {
    let server = Testbed::from_env().redis().await.unwrap();
    let shared = RedisStore::connect(&server.patient_url()).await.unwrap();
    let namespace = namespace("synced");
    let limits = "100/h; 10/d log; 50/h bucket";
    let limiter =
        RateLimiter::new(Synced::new(shared), limits.parse::<Limits>().unwrap()).with_namespace(&namespace);
    let sync = async || limiter.store().sync(SystemClock::new().now()).await.unwrap();
    limiter.charge(Request::new("a").cost(3)).await.unwrap();
    sync().await;

    let cli = Cli::on(&server.patient_url(), &namespace, limits);
    let used = |row: &Value| row["used"].as_u64().unwrap();
    let peek = || {
        let peeked = cli.run(&["peek", "a", "--json"]).only_json();
        peeked["limits"].as_array().unwrap().iter().map(used).collect::<Vec<_>>()
    };
    assert_eq!(peek(), [0, 3, 3]);
    let list = cli.run(&["list", "--scan", "1000000", "--json"]).only_json();
    assert_eq!((&list["matching"], &list["synced"]), (&json!(1), &json!(1)));
    let said = cli.run(&["list", "--scan", "1000000"]).stdout;
    assert!(said.contains(" 1 name is a count of a window of Synced, "), "{said}");

    // The node sees a reset with its next charge.
    assert_eq!(cli.run(&["reset", "a", "--yes"]).code, 0);
    assert_eq!(peek(), [0, 0, 0]);
    limiter.charge("a").await.unwrap();
    sync().await;
    let decision = limiter.peek("a").await.unwrap();
    let used: Vec<u64> = decision.each().map(|status| status.limit() - status.remaining()).collect();
    assert_eq!((used, peek()), (vec![4, 1, 1], vec![0, 1, 1]));
}
