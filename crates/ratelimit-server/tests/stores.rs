//! Servers on a real store: counting together, and while the store is frozen, dead, and back.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use ratelimit_testbed::{Server as Store, Settings, Testbed};
use serde_json::{Value, json};
use tokio::time::Instant;

use support::*;

/// A store that the test may stop.
async fn own_redis() -> Store {
    Testbed::new(Settings { addresses: BTreeMap::new(), ..Settings::from_env() }).redis().await.unwrap()
}

fn policies(limit: &str) -> String {
    format!("[[policies]]\nname = \"user\"\nkey = \"user\"\nlimit = \"{limit}\"\n")
}

/// A namespace of its own, because servers in the environment are shared. A machine may be slow: the time limit is not what
/// these tests are about.
fn options(url: &str, namespace: &str, more: &[&str]) -> Vec<String> {
    let process = std::process::id();
    let mut options = vec![format!("--store={url}"), format!("--namespace={namespace}-{process}")];
    options.push("--timeout=5s".to_owned());
    options.extend(more.iter().map(|option| (*option).to_owned()));
    options
}

async fn start(policies: &str, options: &[String]) -> Started {
    Started::with(policies, &options.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// How many of these checks are admitted, from several clients at once.
async fn admitted(servers: &[&Started], each: usize) -> usize {
    let load = servers.iter().flat_map(|server| {
        (0..4).map(|_| {
            let http = server.http();
            async move { http.statuses(each, &json!({ "policy": "user", "key": "7" })).await }
        })
    });
    let statuses = futures_util::future::join_all(load).await.concat();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_admit_exactly_the_limit() {
    let redis = Testbed::from_env().redis().await.unwrap();
    let options = options(&redis.patient_url(), "straight", &[]);
    let (one, other) =
        (start(&policies("60/day log"), &options).await, start(&policies("60/day log"), &options).await);
    assert_eq!(admitted(&[&one, &other], 20).await, 60);
    // All doors of both count together.
    assert_eq!(other.redis().await.numbers(&["RL.CHECK", "user", "7"]).await[0], 1);
    // A receipt of one is used at the other only with one key.
    let receipt = one.http().post("/v1/check", &json!({ "policy": "user", "key": "8" })).await.receipt();
    assert_eq!(other.http().post("/v1/refund", &json!({ "receipt": receipt })).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_used_once_by_all_servers_with_its_key() {
    let redis = Testbed::from_env().redis().await.unwrap();
    let key = "--receipt-key=0123456789abcdef0123456789abcdef";
    let options = options(&redis.patient_url(), "receipts", &[key]);
    let (one, other) =
        (start(&policies("3/day log"), &options).await, start(&policies("3/day log"), &options).await);
    let body = json!({ "policy": "user", "key": "7" });
    let receipt = one.http().post("/v1/check", &body).await.receipt();
    assert_eq!(one.http().statuses(3, &body).await, [200, 200, 429]);
    assert_eq!(other.http().post("/v1/refund", &json!({ "receipt": receipt })).await.status, 200);
    assert_eq!(one.http().post("/v1/refund", &json!({ "receipt": receipt })).await.status, 409);
    assert_eq!(one.http().statuses(2, &body).await, [200, 429]);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_never_admit_more_and_are_given_back_at_the_end() {
    let redis = Testbed::from_env().redis().await.unwrap();
    let options = options(&redis.patient_url(), "leased", &["--counting=leased"]);
    let file = policies("2000/day fixed");
    let (one, other) = (start(&file, &options).await, start(&file, &options).await);
    let some = admitted(&[&one], 25).await;
    assert_eq!(some, 100);
    let Started { server, .. } = one;
    server.end().await.unwrap();
    // What the first one held is there for the other. It may lease, so it is asked one after another.
    let http = other.http();
    let statuses = http.statuses(1_950, &json!({ "policy": "user", "key": "7" })).await;
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(admitted, 1_900);
}

#[tokio::test(flavor = "multi_thread")]
async fn synced_servers_learn_of_each_other() {
    let redis = Testbed::from_env().redis().await.unwrap();
    let options = options(&redis.patient_url(), "synced", &["--counting=synced", "--interval=20ms"]);
    let file = policies("10000/day fixed");
    let (one, other) = (start(&file, &options).await, start(&file, &options).await);
    let body = json!({ "policy": "user", "key": "7" });
    one.http().statuses(40, &body).await;
    // It learns when it merges what it has counted itself.
    for counted in 1..=1_000 {
        let remaining = other.http().post("/v1/check", &body).await.json()["remaining"].as_u64().unwrap();
        let without_the_others = 10_000 - counted;
        assert!(
            (without_the_others - 40..=without_the_others).contains(&remaining),
            "{remaining} after {counted}"
        );
        if remaining == without_the_others - 40 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never learned of the other's");
}

/// While the store is frozen and while it is dead, each of two servers admits half of the limit, and soon after the store is
/// back it is asked again.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_each_server_admits_its_part() {
    let redis = own_redis().await;
    let url = redis.patient_url();
    let url = url.as_str();
    let options = vec![format!("--store={url}"), "--instances=2".to_owned(), "--timeout=1s".to_owned()];
    let started = start(&policies("20/day log"), &options).await;
    let (http, body) = (started.http(), json!({ "policy": "user", "key": "7" }));
    let receipt = json!({ "receipt": charged_by_the_store(&http).await });
    redis.freeze().await.unwrap();
    let mut slowest = Duration::ZERO;
    let mut admitted = 0;
    for _ in 0..60 {
        let begun = Instant::now();
        let answer = http.post("/v1/check", &body).await;
        slowest = slowest.max(begun.elapsed());
        admitted += usize::from(answer.status == 200);
        assert!(matches!(answer.status, 200 | 429), "{}", answer.status);
    }
    let peek = http.post("/v1/peek", &body).await.json();
    assert_eq!((admitted, &peek["degraded"]), (10, &json!(true)));
    // Not the time of the store's own limit: far below it on any machine.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    redis.thaw().await.unwrap();
    until_degraded(&http, false).await;
    redis.kill().await.unwrap();
    until_degraded(&http, true).await;
    assert_eq!(http.statuses(3, &body).await, [429; 3], "the fallback still counts what it has admitted");
    let unknown = http.post("/v1/refund", &receipt).await;
    assert!(unknown.status == 503 && unknown.error().contains("nobody knows"), "{}", unknown.error());
    redis.start().await.unwrap();
    until_degraded(&http, false).await;
    for status in [200, 409] {
        assert_eq!(http.post("/v1/refund", &receipt).await.status, status);
    }
    assert!(http.metric("ratelimit_fallback_total").await >= 60);
}

/// The receipt of a check that the store has charged: on a busy machine it may come too late, and then the fallback charges.
async fn charged_by_the_store(http: &Http) -> Value {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let body = json!({ "policy": "user", "key": format!("charged-{attempt}") });
        let answer = http.post("/v1/check", &body).await;
        if answer.json()["degraded"] == false {
            return json!(answer.receipt());
        }
    }
}

/// Waits until checks are decided with or without the store.
async fn until_degraded(http: &Http, expected: bool) {
    loop {
        let answer = http.post("/v1/check", &json!({ "policy": "user", "key": "other", "cost": 0 })).await;
        if answer.json()["degraded"] == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_while_its_store_is_down() {
    let redis = own_redis().await;
    let url = redis.url().to_owned();
    redis.kill().await.unwrap();
    let started =
        start(&policies("4/day log"), &[format!("--store={url}"), "--instances=2".to_owned()]).await;
    assert_eq!(started.http().get("/ready").await.status, 200, "it decides by itself");
    assert_eq!(started.http().statuses(3, &json!({ "policy": "user", "key": "7" })).await, [200, 200, 429]);
    redis.start().await.unwrap();
    until_degraded(&started.http(), false).await;
}

/// Negative hits on a store with a server, as on the one in memory.
#[tokio::test(flavor = "multi_thread")]
async fn negative_hits_return_units_on_the_store() {
    let redis = Testbed::from_env().redis().await.unwrap();
    for (limit, number) in [
        ("5/day fixed", 0),
        ("5/day", 1),
        ("5/day precision 1h", 2),
        ("5/day burst 5", 3),
        ("5 in total", 4),
        ("5/day log", 5),
    ] {
        let options = options(&redis.patient_url(), &format!("negative-{number}"), &[]);
        let started = start(&policies(limit), &options).await;
        let mut client = started.grpc().await;
        let domain = options[1].strip_prefix("--namespace=").unwrap();
        let mut ask = async |hits: u64, is_negative_hits: bool| {
            let mut request = request(domain, vec![descriptor(&[("user", "7")])]);
            request.descriptors[0].hits_addend = Some(hits);
            request.descriptors[0].is_negative_hits = is_negative_hits;
            should(&mut client, request).await.unwrap().statuses[0].limit_remaining
        };
        assert_eq!(ask(4, false).await, 1, "{limit}");
        ask(3, true).await;
        assert_eq!(ask(0, false).await, 4, "{limit}");
        ask(9, true).await;
        assert_eq!(ask(0, false).await, 5, "{limit}");
    }
}
