//! Clients in Node.js: its own `fetch`, and node-redis.

use std::path::Path;

use crate::server;
use crate::surroundings::testbed;

#[tokio::test(flavor = "multi_thread")]
async fn fetch_and_node_redis_share_the_counts_of_a_policy() {
    let server = server().await;
    let mut node = testbed().node().await.unwrap_or_else(|error| panic!("{error}"));
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/node.cjs"));
    node.args([server.http().to_string(), server.redis().to_string()]);
    let output = tokio::task::spawn_blocking(move || node.output()).await.expect("no panic").expect("node");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    let expected = [
        "http 200 true 4 \"requests\";q=5;w=86400",
        "http 200 true 3 \"requests\";q=5;w=86400",
        "http 200 true 2 \"requests\";q=5;w=86400",
        "ping PONG",
        "redis 0 5 1",
        "redis 0 5 0",
        "redis 1 5 0",
        "together 0 1",
    ];
    assert_eq!(lines[..8], expected, "{printed}");
    assert!(lines[8].starts_with("error ") && lines[8].contains("nothing"), "{printed}");
}
