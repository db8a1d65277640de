//! Looking, charging, resetting and watching, on each store.

mod common;

use common::{Cli, namespace, rows};
use ratelimit_core::{Limits, RateLimiter, Request};
use ratelimit_testbed::Testbed;
use serde_json::{Value, json};

const LIMITS: &str = "100/30d fixed; 10/h burst 5; 7/d log name daily";

#[tokio::test(flavor = "multi_thread")]
async fn on_redis() {
    let server = Testbed::from_env().redis().await.unwrap();
    let url = format!("{}?prefix=cli:&timeout=60s", server.url());
    all_commands(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_redis_cluster() {
    let cluster = Testbed::from_env().redis_cluster().await.unwrap();
    all_commands(&format!("{}?timeout=60s", cluster.url())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() {
    let server = Testbed::from_env().postgres().await.unwrap();
    let url = format!("{}?schema=cli {}&timeout=60s", server.url(), std::process::id());
    // The program uses the tables of the service and makes none.
    let limits = Cli::on(&url, "", "1/s");
    limits.run(&["peek", "k"]).fails(1, &["are missing; run PostgresStore::migrate()"]);
    limits.run(&["list"]).fails(1, &["are missing; run PostgresStore::migrate()"]);
    all_commands(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_memcached() {
    let server = Testbed::from_env().memcached().await.unwrap();
    all_commands(&format!("{}?timeout=60s", server.url())).await;
}

/// The used and the remaining units of each limit.
fn counts(status: &Value) -> Vec<(u64, u64)> {
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let limits = status["limits"].as_array().unwrap().iter();
    limits.map(|row| (number(row, "used"), number(row, "remaining"))).collect()
}

/// The limits of another program: the operator learns under which ones the client is counted.
async fn limits_that_nobody_uses(url: &str) {
    let [here, other] = ["used", "used elsewhere"].map(namespace);
    let store = ratelimit_stores_of(url).await;
    let charge = async |namespace: &str, limits: &str, key: &str| {
        let limits: Limits = limits.parse().unwrap();
        let limiter = RateLimiter::new(store.clone(), limits).with_namespace(namespace);
        limiter.charge(Request::new(key).cost(9)).await.unwrap();
    };
    let key = &namespace("client");
    charge(&here, "3/h; 9/d log", key).await;
    charge(&other, "5/h burst 5", key).await;
    charge(&other, "7/h fixed", &format!("{key} of another client")).await;
    let listed = |found: &[(&str, &str)]| {
        let one = |(namespace, scope): &(&str, &str)| json!({"namespace": namespace, "scope": scope, "synced": false});
        found.iter().map(one).collect::<Vec<_>>()
    };
    let cli = Cli::on(url, &here, "4/min fixed");
    let (text, found) = (cli.run(&["peek", key]).stdout, cli.run(&["peek", key, "--json"]).only_json());
    assert_eq!(counts(&found), [(0, 4)]);
    assert!(text.contains("Nobody has used these limits") && !text.contains("another client"), "{text}");
    let nobody = cli.run(&["peek", "nobody else's key", "--json"]).only_json();
    assert_eq!(nobody["elsewhere"]["meters"], json!([]));
    if url.starts_with("memcached") {
        assert!(text.contains("This store cannot list its keys"), "{text}");
        assert!(text.contains(&format!("the namespace, \"{here}\",")), "{text}");
        assert_eq!(found["elsewhere"], json!({"meters": [], "complete": false}));
        return;
    }
    let all = [(&*here, "log:1d"), (&*here, "sliding:1h"), (&*other, "bucket:1h")];
    let mut expected = listed(&all);
    expected.sort_by_key(|place| place.to_string());
    let mut meters = found["elsewhere"]["meters"].as_array().unwrap().clone();
    meters.sort_by_key(|place| place.to_string());
    assert_eq!((meters, &found["elsewhere"]["complete"]), (expected, &json!(true)));
    for (namespace, scope) in all {
        let row = [format!("\"{namespace}\""), scope.to_owned()];
        assert!(rows(&text).contains(&row.to_vec()), "{row:?} is not in {text}");
    }
    assert_eq!(nobody["elsewhere"]["complete"], true);
    let nobody = cli.run(&["peek", "nobody else's key"]).stdout;
    assert!(nobody.contains("The store has no other count of this key."), "{nobody}");
    // Not if they are used.
    let used = Cli::on(url, &here, "3/h; 8/d log");
    assert!(used.run(&["peek", key, "--json"]).only_json()["elsewhere"].is_null());
    assert!(!used.run(&["peek", key]).stdout.contains("Nobody"));
}

async fn all_commands(url: &str) {
    bans_and_totals(url).await;
    limits_that_nobody_uses(url).await;
    let namespace = namespace("stores");
    let cli = Cli::on(url, &namespace, LIMITS);
    let limits: Limits = LIMITS.parse().unwrap();
    let store = ratelimit_stores_of(url).await;
    let limiter = RateLimiter::new(store, limits).with_namespace(&namespace);

    // Fresh.
    let fresh = cli.run(&["peek", "a b", "--json"]).only_json();
    assert_eq!(counts(&fresh), [(0, 100), (0, 5), (0, 7)]);
    assert_eq!(fresh["key"], "a b");
    assert_eq!(fresh["limits"][1]["limit"], "10/h burst 5");
    for row in fresh["limits"].as_array().unwrap() {
        assert_eq!(
            [&row["reset_after_seconds"], &row["retry_after_seconds"]],
            [&json!(0.0), &json!(0.0)],
            "{row}"
        );
        assert_eq!([&row["reset_at"], &row["retry_at"]], [&fresh["time"], &fresh["time"]]);
    }

    // What the service has charged.
    for _ in 0..5 {
        assert!(limiter.check("a b").await.unwrap().allowed());
    }
    let status = cli.run(&["peek", "a b", "--json"]).only_json();
    assert_eq!(counts(&status), [(5, 95), (5, 0), (5, 2)]);
    let [window, bucket, log] = &status["limits"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!(
        (&window["quota"], &window["burst"], &window["period_seconds"]),
        (&json!(100), &Value::Null, &json!(2_592_000.0))
    );
    assert_eq!((&bucket["quota"], &bucket["burst"], &log["name"]), (&json!(10), &json!(5), &json!("daily")));
    let seconds = |row: &Value, name: &str| row[name].as_f64().unwrap();
    assert_eq!(seconds(window, "retry_after_seconds"), 0.0);
    assert!(
        (300.0..=360.0).contains(&seconds(bucket, "retry_after_seconds")),
        "one unit drains in six minutes"
    );
    assert!((1_700.0..=1_800.0).contains(&seconds(bucket, "reset_after_seconds")));
    assert!((86_300.0..=86_400.0).contains(&seconds(log, "reset_after_seconds")));
    let table = cli.run(&["peek", "a b", "other"]);
    let table = rows(&table.stdout);
    assert_eq!(table[0], ["a b"]);
    assert_eq!(table[1], ["LIMIT", "QUOTA", "BURST", "USED", "REMAINING", "RESET IN", "RETRY AFTER"]);
    assert_eq!(table[2][..5], ["100/30d fixed", "100", "-", "5", "95"].map(str::to_owned));
    assert_eq!(table[3][..5], ["10/h burst 5", "10", "5", "5", "0"].map(str::to_owned));
    assert_eq!((&*table[2][6], &table[6][0]), ("0", &"other".to_owned()));
    assert_eq!(cli.run(&["peek", "a b", "--exit-code"]).code, 3);
    assert_eq!(cli.run(&["peek", "other", "--exit-code"]).code, 0);
    let costly = cli.run(&["peek", "other", "--cost", "6", "--json"]).only_json();
    assert_eq!(
        (&costly["limits"][1]["retry_after_seconds"], &costly["limits"][1]["retry_at"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(counts(&costly)[1], (0, 5), "a peek charges nothing");

    // Other namespaces and other limits count separately.
    assert_eq!(counts(&Cli::on(url, "", LIMITS).run(&["peek", "a b", "--json"]).only_json())[0].0, 0);

    // A charge counts beyond the limit, and in the service.
    let charged = cli.run(&["charge", "a b", "90", "--json"]).only_json();
    assert_eq!((&charged["charged"], &charged["key"]), (&json!(90), &json!("a b")));
    // A log keeps no more units than it admits.
    assert_eq!(counts(&charged), [(95, 5), (95, 0), (7, 0)]);
    let lowered = Cli::on(url, &namespace, "50/30d fixed").run(&["peek", "a b", "--json"]).only_json();
    assert_eq!(counts(&lowered), [(95, 0)], "a limit that was lowered");
    let decision = limiter.peek(Request::new("a b")).await.unwrap();
    assert_eq!(decision.each().map(|status| status.remaining()).collect::<Vec<_>>(), [5, 0, 0]);
    assert!(cli.run(&["charge", "a b", "1"]).stdout.starts_with("charged 1 to a b\nLIMIT "));

    // Two rounds of a watch, with a charge in between.
    let mut watch = cli.start(&["watch", "other", "--interval", "0.1", "--json"]);
    let first: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!(counts(&first)[0], (0, 100));
    limiter.check("other").await.unwrap();
    let seen = (0..300).any(|_| {
        let next: Value = serde_json::from_str(&watch.line()).unwrap();
        assert_ne!(next["time"], first["time"]);
        counts(&next)[0] == (1, 99)
    });
    assert!(seen, "a watch looks again");
    assert_eq!(watch.interrupt(), Some(0));

    // A reset concerns the named keys only.
    let reset = cli.run(&["reset", "a b", "third", "--yes", "--json"]).json();
    assert_eq!((&reset[0]["key"], &reset[1]["key"]), (&json!("a b"), &json!("third")));
    assert_eq!(
        (counts(&reset[0]["before"])[0], counts(&reset[0]["after"])),
        ((96, 4), vec![(0, 100), (0, 5), (0, 7)])
    );
    assert_eq!(limiter.peek("other").await.unwrap().each().next().unwrap().remaining(), 99);
    assert!(limiter.check("a b").await.unwrap().allowed());
    let table = cli.run(&["reset", "-y", "a b"]).stdout;
    assert_eq!(
        rows(&table)[1..3],
        [["LIMIT", "USED BEFORE", "USED NOW", "REMAINING"], ["100/30d fixed", "1", "0", "100"]]
    );
}

/// A banned key has used no units of the ban, and what was used of a total never comes back.
async fn bans_and_totals(url: &str) {
    let (namespace, text) = (namespace("bans"), "3 in total; ban 1h after 1 in 1h");
    let limits: Limits = text.parse().unwrap();
    let limiter = RateLimiter::new(ratelimit_stores_of(url).await, limits).with_namespace(&namespace);
    let cli = Cli::on(url, &namespace, text);
    let fresh = cli.run(&["peek", "k", "--json"]).only_json();
    assert_eq!(fresh["limits"][0]["reset_after_seconds"], 0.0);
    for _ in 0..4 {
        limiter.check("k").await.unwrap();
    }
    let status = cli.run(&["peek", "k", "--json"]).only_json();
    assert_eq!(counts(&status), [(3, 0), (0, 0)]);
    let total = &status["limits"][0];
    let never = ["reset_after_seconds", "reset_at", "retry_after_seconds", "retry_at"];
    assert!(never.iter().all(|name| total[name].is_null()), "{total}");
    assert!((3_500.0..=3_600.0).contains(&status["limits"][1]["reset_after_seconds"].as_f64().unwrap()));
    let table = rows(&cli.run(&["peek", "k"]).stdout);
    assert_eq!(table[2], ["3 in total", "3", "-", "3", "0", "never", "never"]);
    assert_eq!(table[3][..5], ["ban 1h after 1 in 1h", "1", "-", "0", "0"].map(str::to_owned));
    let table = rows(&cli.run(&["reset", "-y", "k"]).stdout);
    assert_eq!(table[2..4].iter().map(|row| &*row[1]).collect::<Vec<_>>(), ["3", "0"]);
    assert_eq!(table[2..4].iter().map(|row| &*row[3]).collect::<Vec<_>>(), ["3", "-"]);
    let lifted = cli.run(&["peek", "k", "--json"]).only_json();
    assert!(lifted["limits"][1]["remaining"].is_null(), "{lifted}");
}

/// The store as a service opens it.
async fn ratelimit_stores_of(url: &str) -> ratelimit_stores::Store {
    match url.starts_with("memcached") {
        true => ratelimit_stores::connect(url).await.unwrap(),
        false if url.starts_with("redis") => {
            std::sync::Arc::new(ratelimit_redis::RedisStore::connect(url).await.unwrap())
        }
        false => std::sync::Arc::new(ratelimit_postgres::PostgresStore::connect(url).await.unwrap()),
    }
}
