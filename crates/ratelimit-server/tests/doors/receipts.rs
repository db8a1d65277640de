//! Receipts: what they give back, once, and what is no receipt.

use serde_json::json;

use crate::support::*;

const KEY: &str = "--receipt-key=0123456789abcdef0123456789abcdef";

async fn left(http: &Http, policy: &str) -> u64 {
    let peek = http.post("/v1/peek", &json!({ "policy": policy, "key": "7" })).await;
    peek.json()["remaining"].as_u64().unwrap()
}

async fn charge(http: &Http, policy: &str, cost: u64) -> String {
    http.post("/v1/check", &json!({ "policy": policy, "key": "7", "cost": cost })).await.receipt()
}

#[tokio::test]
async fn what_was_charged_is_given_back_once() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let receipt = charge(&http, "user", 2).await;
    assert_eq!(left(&http, "user").await, 1);
    assert_eq!(http.post("/v1/refund", &json!({ "receipt": receipt })).await.status, 200);
    assert_eq!(left(&http, "user").await, 3);
    charge(&http, "user", 2).await;
    for path in ["/v1/refund", "/v1/release"] {
        let again = http.post(path, &json!({ "receipt": receipt })).await;
        assert_eq!(again.status, 409);
        assert!(again.error().contains("used before"));
    }
    assert_eq!(http.post("/v1/settle", &json!({ "receipt": receipt, "cost": 0 })).await.status, 409);
    assert_eq!(left(&http, "user").await, 1, "no unit was given back twice");
}

#[tokio::test]
async fn concurrent_refunds_give_back_once() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let receipt = charge(&http, "user", 1).await;
    charge(&http, "user", 2).await;
    let body = json!({ "receipt": receipt });
    let refunds = (0..20).map(|_| http.post("/v1/refund", &body));
    let mut statuses: Vec<u16> =
        futures_util::future::join_all(refunds).await.into_iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (200, &[409; 19][..]));
    assert_eq!(left(&http, "user").await, 1);
}

#[tokio::test]
async fn an_estimate_is_settled() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let receipt = charge(&http, "user", 1).await;
    assert_eq!(http.post("/v1/settle", &json!({ "receipt": receipt, "cost": 3 })).await.status, 200);
    assert_eq!(left(&http, "user").await, 0);
    assert_eq!(
        http.post("/v1/refund", &json!({ "receipt": receipt })).await.status,
        200,
        "what it holds: nothing"
    );
    assert_eq!(left(&http, "user").await, 0, "what was settled stays charged");
}

#[tokio::test]
async fn what_is_held_is_released() {
    let file = "[[policies]]\nname = \"user\"\nkey = \"user\"\nlimit = [\"2 at once\", \"100/day log\"]\n";
    let started = Started::with(file, &[]).await;
    let http = started.http();
    let (first, second) = (charge(&http, "user", 1).await, charge(&http, "user", 1).await);
    let body = json!({ "policy": "user", "key": "7" });
    assert_eq!(http.statuses(1, &body).await, [429]);
    assert_eq!(http.post("/v1/settle", &json!({ "receipt": first, "cost": 10 })).await.status, 200);
    assert_eq!(http.statuses(1, &body).await, [429], "settled, and still held");
    assert_eq!(http.post("/v1/release", &json!({ "receipt": first })).await.status, 200);
    assert_eq!(http.post("/v1/release", &json!({ "receipt": first })).await.status, 409);
    assert_eq!(http.statuses(2, &body).await, [200, 429]);
    assert_eq!(http.post("/v1/refund", &json!({ "receipt": second })).await.status, 200);
    assert_eq!(http.statuses(2, &body).await, [200, 429]);
}

#[tokio::test]
async fn what_is_no_receipt_is_refused() {
    let started = Started::with(POLICIES, &[KEY]).await;
    let http = started.http();
    let receipt = charge(&http, "user", 3).await;
    let mut changed = receipt.clone().into_bytes();
    changed[50] = if changed[50] == b'A' { b'B' } else { b'A' };
    for forged in [
        "",
        "x",
        "AAAA",
        std::str::from_utf8(&changed).unwrap(),
        &receipt[..receipt.len() - 5],
        &"A".repeat(100_000),
    ] {
        for path in ["/v1/refund", "/v1/release"] {
            let response = http.post(path, &json!({ "receipt": forged })).await;
            assert_eq!(response.status, 400);
            assert!(response.error().contains("not a receipt of this server"));
        }
    }
    assert_eq!(left(&http, "user").await, 0);
    for (path, body) in [
        ("/v1/refund", json!({ "receipt": receipt, "cost": 1 })),
        ("/v1/settle", json!({ "receipt": receipt })),
        ("/v1/settle", json!({ "receipt": receipt, "cost": -1 })),
        ("/v1/release", json!({ "receipt": receipt, "cost": 1 })),
        ("/v1/refund", json!({})),
        ("/v1/refund", json!({ "receipt": 5 })),
    ] {
        assert_eq!(http.post(path, &body).await.status, 400, "{path}");
    }
    // None of these has used it.
    assert_eq!(http.post("/v1/refund", &json!({ "receipt": receipt })).await.status, 200);
}

#[tokio::test]
async fn servers_with_one_key_take_each_others_receipts_for_their_own_files() {
    let (one, other) = (Started::with(POLICIES, &[KEY]).await, Started::with(POLICIES, &[KEY]).await);
    let receipt = charge(&one.http(), "user", 1).await;
    // Its memory is another: nothing counts there, so nothing is given back.
    assert_eq!(other.http().post("/v1/refund", &json!({ "receipt": receipt })).await.status, 200);
    assert_eq!(left(&other.http(), "user").await, 3);
    let file = "[[policies]]\nname = \"other\"\nkey = \"user\"\nlimit = \"3/day\"\n";
    let another_file = Started::with(file, &[KEY]).await;
    let response = another_file.http().post("/v1/refund", &json!({ "receipt": receipt })).await;
    assert_eq!(response.status, 404);
    assert!(response.error().contains("\"user\""), "{}", response.error());
    let another_key = Started::with(POLICIES, &[]).await;
    assert_eq!(another_key.http().post("/v1/refund", &json!({ "receipt": receipt })).await.status, 400);
}

#[tokio::test]
async fn old_receipts_are_refused() {
    let started = Started::with(POLICIES, &["--receipt-lifetime=1ms"]).await;
    let http = started.http();
    let receipt = charge(&http, "user", 1).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let response = http.post("/v1/refund", &json!({ "receipt": receipt })).await;
    assert_eq!(response.status, 410);
    assert!(response.error().contains("--receipt-lifetime"));
}

#[tokio::test]
async fn limits_of_the_request_have_receipts_too() {
    let started = Started::with(POLICIES, &["--allow-limits"]).await;
    let http = started.http();
    let body = json!({ "limits": "1/day log", "key": "7" });
    let receipt = http.post("/v1/check", &body).await.receipt();
    assert_eq!(http.statuses(1, &body).await, [429]);
    assert_eq!(http.post("/v1/refund", &json!({ "receipt": receipt })).await.status, 200);
    assert_eq!(http.statuses(1, &body).await, [200]);
}
