//! HTTP: checks, batches, subrequests of gateways, administration.

use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_policy_is_used_up_then_refused_with_the_layers_fields() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let body = json!({ "policy": "user", "key": "7" });
    for remaining in [2, 1, 0] {
        let response = http.post("/v1/check", &body).await;
        let answer = response.json();
        assert_eq!(
            (response.status, &answer["allowed"], &answer["remaining"]),
            (200, &json!(true), &json!(remaining))
        );
        assert_eq!((&answer["limit"], &answer["degraded"]), (&json!(3), &json!(false)));
        assert_eq!(response.headers["ratelimit-policy"], "\"user\";q=3;w=86400");
        assert!(
            response.headers["ratelimit"]
                .to_str()
                .unwrap()
                .starts_with(&format!("\"user\";r={remaining};t="))
        );
    }
    let response = http.post("/v1/check", &body).await;
    let answer = response.json();
    assert_eq!((response.status, &answer["allowed"]), (429, &json!(false)));
    assert_eq!(answer["violated_policies"], json!(["user"]));
    assert!(answer.get("receipt").is_none(), "a refusal has charged nothing");
    let seconds: u64 = response.headers["retry-after"].to_str().unwrap().parse().unwrap();
    let millis = answer["retry_after_ms"].as_u64().unwrap();
    assert!(seconds * 1_000 >= millis && millis > 86_000_000, "{seconds} {millis}");
    assert_eq!(response.headers["cache-control"], "no-store");
    assert_eq!(http.statuses(1, &json!({ "policy": "user", "key": "8" })).await, [200], "another client");
}

#[tokio::test]
async fn costs_plans_and_peeks() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    assert_eq!(http.statuses(1, &json!({ "policy": "user", "key": "7", "cost": 4 })).await, [429]);
    assert_eq!(http.statuses(1, &json!({ "policy": "user", "key": "7", "cost": 2 })).await, [200]);
    let peek = http.post("/v1/peek", &json!({ "policy": "user", "key": "7" })).await;
    assert_eq!((peek.status, &peek.json()["remaining"]), (200, &json!(1)));
    let paid = http.post("/v1/check", &json!({ "policy": "user", "key": "7", "plan": "paid" })).await;
    assert_eq!((paid.status, &paid.json()["remaining"]), (200, &json!(97)), "plans share the counts");
    let partner = json!({ "policy": "user", "key": "7", "plan": "partner", "cost": 1_000_000 });
    let unlimited = http.post("/v1/check", &partner).await;
    assert_eq!(unlimited.json(), json!({ "allowed": true, "degraded": false }));
}

#[tokio::test]
async fn descriptors_are_admitted_together_or_not_at_all() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let both = json!({ "descriptors": [{ "tenant": "a" }, { "tenant": "a", "route": "login" }] });
    assert_eq!(http.statuses(3, &both).await, [200, 200, 429]);
    let left = |response: Response| response.json()["remaining"].as_u64();
    let tenant = json!({ "descriptors": [{ "tenant": "a" }] });
    assert_eq!(left(http.post("/v1/peek", &tenant).await), Some(3), "the refusal has charged nothing");
    let unmatched = http.post("/v1/check", &json!({ "descriptors": [{ "nothing": "a" }] })).await;
    assert_eq!((unmatched.status, unmatched.json()), (200, json!({ "allowed": true, "degraded": false })));
    // By name it is the same count.
    let by_name = json!({ "policy": "login", "key": ["a", "login"] });
    assert_eq!(http.statuses(1, &by_name).await, [429]);
    assert_eq!(http.statuses(1, &json!({ "policy": "login", "key": "a + login" })).await, [429]);
}

#[tokio::test]
async fn limits_in_requests_only_if_allowed() {
    let body = json!({ "limits": "2/day log", "key": "7" });
    let refused = Started::with(POLICIES, &[]).await.http().post("/v1/check", &body).await;
    assert_eq!(refused.status, 400);
    assert!(refused.error().contains("--allow-limits"));
    let started = Started::with(POLICIES, &["--allow-limits"]).await;
    let http = started.http();
    assert_eq!(http.statuses(3, &body).await, [200, 200, 429]);
    let left = http.post("/v1/peek", &json!({ "policy": "user", "key": "7" })).await;
    assert_eq!(left.json()["remaining"], 3, "no count of the file's policies");
    let wrong = http.post("/v1/check", &json!({ "limits": "2 per fortnight", "key": "7" })).await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn a_batch_decides_each_by_itself() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let checks: Vec<_> = (0..5).map(|_| json!({ "policy": "user", "key": "7" })).collect();
    let mut all = checks.clone();
    all.push(json!({ "policy": "user", "key": "8" }));
    all.push(json!({ "policy": "nobody", "key": "8" }));
    let response = http.post("/v1/batch", &json!({ "checks": all })).await;
    let answer = response.json();
    let statuses: Vec<u64> =
        answer["results"].as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect();
    assert_eq!((response.status, statuses), (200, vec![200, 200, 200, 429, 429, 200, 404]));
    let many: Vec<_> = (0..101).map(|_| checks[0].clone()).collect();
    assert_eq!(http.post("/v1/batch", &json!({ "checks": many })).await.status, 400);
    assert_eq!(http.post("/v1/batch", &json!({ "checks": [] })).await.json(), json!({ "results": [] }));
}

#[tokio::test]
async fn a_subrequest_is_decided_by_the_original_request() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let auth = async |query: &str, client: &str, target: &str| {
        let headers = [("x-forwarded-for", client), ("x-original-uri", target), ("x-original-method", "GET")];
        http.send("GET", &format!("/v1/auth{query}"), &headers, "").await
    };
    assert_eq!(auth("", "192.0.2.1", "/other").await.headers.get("ratelimit"), None, "no policy is for it");
    for status in [200, 200, 429] {
        let response = auth("", "192.0.2.1", "/limited?x=1").await;
        assert_eq!(response.status, status);
        assert!(response.headers["ratelimit"].to_str().unwrap().starts_with("\"address\";r="));
        assert_eq!(response.headers.contains_key("retry-after"), status == 429);
    }
    assert_eq!(auth("?status=403", "192.0.2.1", "/limited").await.status, 403);
    assert_eq!(auth("?status=401", "192.0.2.1", "/limited").await.status, 401);
    assert_eq!(auth("?status=403", "192.0.2.2", "/limited").await.status, 200);
    for (query, status) in
        [("?status=500", 400), ("?stat=403", 400), ("?plan=nothing", 404), ("?plan=paid", 200)]
    {
        assert_eq!(auth(query, "192.0.2.3", "/other").await.status, status, "{query}");
    }
    let twice = [("x-original-uri", "/limited"), ("x-original-uri", "/other")];
    assert_eq!(http.send("GET", "/v1/auth", &twice, "").await.status, 400);
    let forwarded =
        [("x-forwarded-for", "192.0.2.1"), ("x-forwarded-uri", "/limited"), ("x-forwarded-method", "POST")];
    assert_eq!(http.send("POST", "/v1/auth", &forwarded, "").await.status, 429, "Traefik and Caddy");
    assert_eq!(auth("", "192.0.2.1", "not a path").await.status, 400);
}

#[tokio::test]
async fn counts_are_changed_at_the_administrative_address_only() {
    let started = Started::with(POLICIES, &["--admin=127.0.0.1:0"]).await;
    let (http, admin) = (started.http(), started.admin());
    let body = json!({ "policy": "user", "key": "7" });
    assert_eq!(http.statuses(4, &body).await, [200, 200, 200, 429]);
    assert_eq!(http.post("/v1/reset", &body).await.status, 404);
    assert_eq!(admin.post("/v1/check", &body).await.status, 404);
    assert_eq!(admin.post("/v1/reset", &body).await.status, 200);
    assert_eq!(http.statuses(4, &body).await, [200, 200, 200, 429]);
    assert!(Started::with(POLICIES, &[]).await.server.addresses().admin.is_none());
}

#[tokio::test]
async fn metrics_count_checks_and_contain_no_key() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let before = http.metric("ratelimit_policy_checks_total{policy=\"user\"}").await;
    http.statuses(2, &json!({ "policy": "user", "key": "a-key-of-a-client" })).await;
    assert!(http.metric("ratelimit_policy_checks_total{policy=\"user\"}").await >= before + 2);
    let metrics = http.get("/metrics").await;
    assert!(metrics.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert!(!str::from_utf8(&metrics.body).unwrap().contains("a-key-of-a-client"));
    assert_eq!((http.get("/live").await.status, http.get("/ready").await.status), (OK, OK));
}

/// A policy that counts by a header: by name and by descriptor the value is given, a subrequest has it or not.
#[tokio::test]
async fn a_policy_that_needs_a_header() {
    let policy = |name: &str, more: &str| {
        format!("[[policies]]\nname = \"{name}\"\nkey = \"header:x-{name}\"\nlimit = \"2/day log\"\n{more}\n")
    };
    let file = policy("user", "") + &policy("token", "missing = \"refuse\"");
    let started = Started::with(&file, &[]).await;
    let http = started.http();
    let auth = async |headers: &[(&str, &str)]| http.send("GET", "/v1/auth", headers, "").await.status;
    assert_eq!(auth(&[("x-user", "7")]).await, 400, "the other policy refuses requests without its header");
    assert_eq!(auth(&[("x-user", "7"), ("x-token", "a")]).await, 200);
    assert_eq!(
        http.statuses(2, &json!({ "policy": "user", "key": "7" })).await,
        [200, 429],
        "they count together"
    );
    assert_eq!(http.statuses(2, &json!({ "descriptors": [{ "x-token": "a" }] })).await, [200, 429]);
    // Those without the header are counted together.
    assert_eq!(auth(&[("x-token", "b")]).await, 200);
    assert_eq!(auth(&[("x-token", "c")]).await, 200);
    assert_eq!(auth(&[("x-token", "d")]).await, 429);
    assert_eq!(auth(&[("x-user", "8"), ("x-user", "9"), ("x-token", "e")]).await, 400, "which is it?");
}
