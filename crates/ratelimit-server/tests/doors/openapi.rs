//! The OpenAPI document, compared with the server: its paths, statuses, bodies and fields.

use serde_json::{Value, json};

use crate::support::*;

async fn document(http: &Http) -> Value {
    http.get("/openapi.json").await.json()
}

/// Panics unless `value` is as `schema` says.
fn check_schema(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("no {name}"));
        return check_schema(document, schema, value, place);
    }
    match schema["type"].as_str() {
        Some("object") => {
            let object = value.as_object().unwrap_or_else(|| panic!("{place}: no object: {value}"));
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(
                    object.contains_key(required.as_str().unwrap()),
                    "{place}: {required} is missing in {value}"
                );
            }
            for (name, value) in object {
                let of = &schema["properties"][name];
                assert!(
                    !of.is_null() || schema["additionalProperties"] != false,
                    "{place}: {name} is not documented"
                );
                if !of.is_null() {
                    check_schema(document, of, value, &format!("{place}.{name}"));
                }
            }
        }
        Some("array") => {
            for (index, value) in
                value.as_array().unwrap_or_else(|| panic!("{place}: no list")).iter().enumerate()
            {
                check_schema(document, &schema["items"], value, &format!("{place}[{index}]"));
            }
        }
        Some("string") => assert!(value.is_string(), "{place}: {value}"),
        Some("integer") => assert!(value.is_u64(), "{place}: {value}"),
        Some("boolean") => assert!(value.is_boolean(), "{place}: {value}"),
        other => assert!(schema["oneOf"].is_array(), "{place}: {other:?}"),
    }
}

/// Panics unless the response is one of those that the operation documents.
fn check_response(document: &Value, operation: &Value, response: &Response, place: &str) {
    let documented = &operation["responses"][response.status.to_string()];
    assert!(!documented.is_null(), "{place}: {} is not documented: {:?}", response.status, response.body);
    let json = &documented["content"]["application/json"]["schema"];
    if json.is_null() {
        let is_text = !documented["content"]["text/plain"].is_null();
        // An error says what is wrong even where a success has no body.
        assert!(
            is_text || response.body.is_empty() || response.status >= 400,
            "{place}: {:?}",
            response.body
        );
    } else {
        check_schema(document, json, &response.json(), place);
    }
    for name in documented["headers"].as_object().into_iter().flatten().map(|(name, _)| name.to_lowercase()) {
        assert!(response.headers.contains_key(&*name), "{place}: {} without {name}", response.status);
    }
}

const FILE: &str = r#"
[[policies]]
name = "requests"
key = "user"
limit = "3/day log"

[[policies]]
name = "address"
key = "address"
limit = "2/day log"

[[policies]]
name = "login"
key = ["tenant", "route=login"]
limit = "5/day log"
"#;

#[tokio::test]
async fn every_operation_is_as_documented() {
    let started = Started::with(FILE, &["--admin=127.0.0.1:0"]).await;
    let (http, admin) = (started.http(), started.admin());
    let document = document(&http).await;
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            let at = if path == "/v1/reset" { &admin } else { &http };
            let place = format!("{method} {path}");
            let body = &operation["requestBody"]["content"]["application/json"];
            for _ in 0..5 {
                let receipt =
                    http.post("/v1/check", &json!({ "policy": "login", "key": ["r", "login"] })).await;
                let receipt = receipt.json()["receipt"].as_str().unwrap_or("none").to_owned();
                let example = body["example"].to_string().replace("{receipt}", &receipt);
                let example = if body["example"].is_null() { String::new() } else { example };
                if !example.is_empty() {
                    let value = serde_json::from_str(&example).unwrap();
                    check_schema(&document, &body["schema"], &value, &format!("{place}: the example"));
                }
                let response = at.send(&method.to_uppercase(), path, &[], example).await;
                check_response(&document, operation, &response, &place);
            }
            let is_success = |status: &String| status == "200";
            assert!(operation["responses"].as_object().unwrap().keys().any(is_success), "{place}");
            if !body.is_null() {
                for wrong in ["", "{}", "[]", "{\"unknown\": 1}", "not JSON", "\u{0}"] {
                    let response = at.send(&method.to_uppercase(), path, &[], wrong).await;
                    assert_eq!(response.status, 400, "{place} {wrong:?}");
                    check_response(&document, operation, &response, &place);
                }
            }
        }
    }
    assert!(operations >= 11, "{operations}");
}

#[tokio::test]
async fn statuses_of_receipts_and_subrequests_are_documented() {
    let started = Started::with(FILE, &["--receipt-lifetime=1h"]).await;
    let http = started.http();
    let document = document(&http).await;
    let receipt = http.post("/v1/check", &json!({ "policy": "requests", "key": "7" })).await.receipt();
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let response = http.post("/v1/refund", &json!({ "receipt": receipt })).await;
        check_response(&document, &document["paths"]["/v1/refund"]["post"], &response, "refund");
        statuses.push(response.status);
    }
    for query in ["", "", "", "?status=401", "?status=403", "?plan=none"] {
        let response = http.get(&format!("/v1/auth{query}")).await;
        check_response(&document, &document["paths"]["/v1/auth"]["get"], &response, "auth");
        statuses.push(response.status);
    }
    assert_eq!(statuses, [200, 409, 200, 200, 429, 401, 403, 404]);
}

#[tokio::test]
async fn every_route_is_documented_and_nothing_else() {
    let started = Started::with(FILE, &[]).await;
    let document = document(&started.http()).await;
    let mut documented: Vec<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let source = include_str!("../../src/http/routes.rs");
    // The tables of paths and methods.
    let rows = source.split("(\"/").skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut routes: Vec<String> = rows.map(|path| format!("/{path}")).collect();
    documented.sort_unstable();
    routes.sort_unstable();
    routes.dedup();
    assert_eq!(documented, routes);
}
