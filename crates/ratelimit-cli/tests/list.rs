//! `list`: the keys that are nearest to their limit, where the store can tell.

mod common;

use common::{Cli, namespace, rows};
use ratelimit_core::{Limits, RateLimiter, Request};
use ratelimit_postgres::PostgresStore;
use ratelimit_redis::RedisStore;
use ratelimit_stores::Store;
use ratelimit_testbed::Testbed;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// More than any server of the tests has.
const ALL: &str = "1000000";

#[tokio::test(flavor = "multi_thread")]
async fn on_redis() {
    let server = Testbed::from_env().redis().await.unwrap();
    let store = Arc::new(RedisStore::connect(&server.patient_url()).await.unwrap());
    lists(&server.patient_url(), store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_redis_cluster() {
    let cluster = Testbed::from_env().redis_cluster().await.unwrap();
    let url = format!("{}?timeout=60s", cluster.url());
    let store = Arc::new(RedisStore::connect(&url).await.unwrap());
    lists(&url, store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() {
    let server = Testbed::from_env().postgres().await.unwrap();
    let url = format!("{}?schema=cli_list_{}&timeout=60s", server.url(), std::process::id());
    let store = Arc::new(PostgresStore::connect(&url).await.unwrap());
    lists(&url, store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_primary_that_sentinels_watch() {
    let sentinels = Testbed::from_env().redis_sentinel(Duration::from_secs(60)).await.unwrap();
    let url = format!("{}?timeout=60s", sentinels.url());
    let store = Arc::new(RedisStore::connect(&url).await.unwrap());
    lists(&url, store).await;
}

fn keys(list: &Value) -> Vec<String> {
    list["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
}

async fn lists(url: &str, store: Store) {
    let (here, other) = (namespace("list"), namespace("list other"));
    let charge = async |namespace: &str, limits: &str, key: &[u8], units: u64| {
        let limits: Limits = limits.parse().unwrap();
        let limiter = RateLimiter::new(store.clone(), limits).with_namespace(namespace);
        limiter.charge(Request::new(key).cost(units)).await.unwrap();
    };
    let limits = "100/30d fixed; 10/d log";
    let cli = Cli::on(url, &here, limits);
    let nothing = cli.run(&["list", "--scan", ALL]);
    assert!(nothing.stdout.contains("No key has used anything under these limits; check"), "{nothing:?}");

    charge(&here, limits, b"half", 5).await; // 5 of 10 in the log
    charge(&here, limits, b"full", 10).await;
    charge(&here, limits, b"little", 1).await;
    charge(&here, "100/30d fixed", b"window only \x1b[2J", 97).await;
    charge(&here, "7/min", b"another limit", 7).await;
    charge(&other, limits, b"another namespace", 10).await;
    charge(&here, limits, &[b'x'; 300], 10).await;

    let list = cli.run(&["list", "--scan", ALL, "--json"]).only_json();
    assert_eq!(keys(&list), ["full", "window only \\x1b[2J", "half", "little"]);
    assert_eq!((&list["matching"], &list["more"]), (&json!(4), &json!(false)));
    assert!(list["digests"].as_u64().unwrap() >= 2 && list["looked_at"].as_u64().unwrap() >= 10, "{list}");
    let numbers = |row: &Value| [&row["used"], &row["remaining"]].map(|number| number.as_u64().unwrap());
    let half = list["keys"][2]["limits"].as_array().unwrap();
    assert_eq!(half.iter().map(numbers).collect::<Vec<_>>(), [[5, 95], [5, 5]]);
    // What it prints can be written.
    let peeked = cli.run(&["--escaped", "peek", "window only \\x1b[2J", "--json"]).only_json();
    assert_eq!(peeked["limits"][0]["used"], 97);

    let top = cli.run(&["list", "--top", "2", "--scan", ALL]).stdout;
    let table = rows(&top);
    assert_eq!(table[0], ["LIMIT", "USED", "REMAINING", "RESET IN", "RETRY AFTER", "KEY"]);
    assert_eq!([&table[1][..3], &table[1][5..]].concat(), ["10/d log", "10", "0", "full"]);
    assert_eq!(
        [&table[2][..3], &table[2][5..]].concat(),
        ["100/30d fixed", "97", "3", "window only \\x1b[2J"]
    );
    assert!(top.contains("4 keys have used something under these limits; the 2 nearest are shown."), "{top}");
    assert!(top.contains("names are digests of long keys"), "{top}");
    assert!(!top.contains('\x1b'));

    // A period of the calendar has a window of its own.
    charge(&here, "9/month", b"monthly", 4).await;
    let monthly = Cli::on(url, &here, "9/month");
    let list = monthly.run(&["list", "--scan", ALL, "--json"]).only_json();
    assert_eq!((keys(&list), &list["keys"][0]["limits"][0]["used"]), (vec!["monthly".to_owned()], &json!(4)));

    let all = cli.run(&["list", "--scan", ALL, "--json"]).only_json()["looked_at"].as_u64().unwrap();

    // The bound: there is more to look at.
    let bounded = cli.run(&["list", "--scan", "2", "--json"]).only_json();
    assert_eq!(bounded["more"], true);
    assert!(bounded["looked_at"].as_u64().unwrap() < 10, "{bounded}");
    assert!(cli.run(&["list", "--scan", "2"]).stdout.contains("there are more, raise --scan"));
    // Also if it ends with the last name of one node, and has not looked at the others.
    for scan in 1..=9 {
        let bounded = cli.run(&["list", "--scan", &scan.to_string(), "--json"]).only_json();
        assert!(
            bounded["more"] == true || bounded["looked_at"].as_u64().unwrap() >= all,
            "{scan}: {bounded}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memcached_cannot_list() {
    let server = Testbed::from_env().memcached().await.unwrap();
    let ran = Cli::on(server.url(), "", "1/s").run(&["list"]);
    ran.fails(1, &["this store cannot list its keys", "`peek KEY`", "Redis and PostgreSQL can list"]);
}
