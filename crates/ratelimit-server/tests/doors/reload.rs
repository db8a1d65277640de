//! A file that changes while the server runs, and files with errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratelimit_server::Server;
use serde_json::json;

use crate::support::*;

/// Waits until a policy has this limit.
async fn until_limit(http: &Http, policy: &str, limit: u64) {
    loop {
        let peek = http.post("/v1/peek", &json!({ "policy": policy, "key": "7" })).await;
        if peek.status == 200 && peek.json()["limit"] == limit {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn file(limit: u64) -> String {
    format!("[[policies]]\nname = \"user\"\nkey = \"user\"\nlimit = \"{limit}/day log\"\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_used_and_no_answer_is_lost() {
    let started = Started::with(&file(3), &[]).await;
    let http = started.http();
    let receipt = http.post("/v1/check", &json!({ "policy": "user", "key": "7" })).await.receipt();
    let is_over = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (http, is_over) = (started.http(), is_over.clone());
        async move {
            let mut answers = 0;
            while !is_over.load(Ordering::SeqCst) {
                let status = http.post("/v1/check", &json!({ "policy": "user", "key": "load" })).await.status;
                assert!(matches!(status, 200 | 429), "{status}");
                answers += 1;
            }
            answers
        }
    });
    std::fs::write(started.file(), file(10)).unwrap();
    until_limit(&http, "user", 10).await;
    let left = http.post("/v1/peek", &json!({ "policy": "user", "key": "7" })).await;
    assert_eq!(left.json()["remaining"], 9, "what was used stays used");
    assert_eq!(
        http.post("/v1/refund", &json!({ "receipt": receipt })).await.status,
        200,
        "from before the reload"
    );
    assert_eq!(http.post("/v1/peek", &json!({ "policy": "user", "key": "7" })).await.json()["remaining"], 10);
    // A broken file keeps the old one.
    let failed = "ratelimit_config_reloads_total{result=\"failed\"}";
    let before = http.metric(failed).await;
    std::fs::write(started.file(), "[[policies]]\nname = 5\n").unwrap();
    while http.metric(failed).await == before {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_limit(&http, "user", 10).await;
    // A policy that is gone.
    let receipt = http.post("/v1/check", &json!({ "policy": "user", "key": "7" })).await.receipt();
    std::fs::write(started.file(), file(5).replace("\"user\"\nkey", "\"other\"\nkey")).unwrap();
    until_limit(&http, "other", 5).await;
    is_over.store(true, Ordering::SeqCst);
    // The load asks for a policy that is gone by now: then it is told so.
    let _ = load.await;
    let gone = http.post("/v1/refund", &json!({ "receipt": receipt })).await;
    assert!(gone.status == 404 && gone.error().contains("\"user\""), "{}", gone.error());
}

#[tokio::test]
async fn a_server_with_a_broken_file_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let option = path.to_str().unwrap();
    for (text, expected) in [
        ("[[policies]]\nname = \"a\"\nkey = \"user\"\nlimit = \"x\"\n", "limits.toml:4"),
        ("[[policies]]\nname = \"a\"\nkey = \"us er\"\nlimit = \"1/s\"\n", "limits.toml:3"),
        ("[[policies]", "limits.toml:1"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Server::start(args(&["--config", option])).await.unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
        let domain = format!("--domain=edge={option}");
        let error = Server::start(args(&[&domain])).await.unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_says_which() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for option in ["--http", "--grpc", "--redis", "--admin"] {
        let error = Server::start(args(&[&format!("{option}={address}")])).await.unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains(option) && text.contains(&address), "{text}");
    }
    let error = Server::start(args(&["--store=mongodb://user:secret@host"])).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("--store") && !text.contains("secret"), "{text}");
}
