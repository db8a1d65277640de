//! Logs of real servers in their default formats, each of the same requests: `logs/make.sh` has sent them.

mod common;

use std::collections::BTreeMap;

use common::lab;
use serde_json::{Value, json};

/// The servers, and what their formats do not have.
const SERVERS: [(&str, &[&str]); 9] = [
    ("nginx", &[]),
    ("apache", &[]),
    ("apache-vhost", &[]),
    ("lighttpd", &[]),
    ("haproxy", &["agent"]),
    ("caddy", &[]),
    ("varnish", &[]),
    ("squid", &["agent"]),
    ("envoy", &[]),
];

/// The address, the path, the method and the agent of the requests, as the script has made them.
fn sent() -> impl Iterator<Item = BTreeMap<&'static str, String>> {
    const PATHS: [&str; 8] = ["/", "/a", "/b", "/login", "/missing", "/old", "/a%20b", "/c"];
    const AGENTS: [&str; 3] = ["curl/8.0", "Mozilla/5.0 (X11; \"quoted\") [x]", "-"];
    (1..=30).map(|n: usize| {
        let client = if n.is_multiple_of(7) { 9 } else { n % 3 + 2 };
        let method = match n {
            _ if n.is_multiple_of(11) => "POST",
            _ if n.is_multiple_of(5) => "HEAD",
            _ => "GET",
        };
        BTreeMap::from([
            ("ip", format!("127.0.0.{client}")),
            ("path", PATHS[n % 8].to_owned()),
            ("method", method.to_owned()),
            ("agent", AGENTS[n % 3].to_owned()),
        ])
    })
}

/// The requests of each key, and those of them that are refused if three are admitted.
fn by_hand(by: &str, is_missing: bool) -> BTreeMap<String, (u64, u64)> {
    let mut counts = BTreeMap::<String, (u64, u64)>::new();
    for request in sent() {
        let key = if is_missing { "-".to_owned() } else { request[by].clone() };
        let count = counts.entry(key).or_default();
        count.0 += 1;
        count.1 = count.0.saturating_sub(3);
    }
    counts
}

#[test]
fn logs_of_real_servers_are_read_without_an_option() {
    for (server, missing) in SERVERS {
        let path = format!("{}/tests/logs/{server}.log", env!("CARGO_MANIFEST_DIR"));
        for by in ["ip", "path", "method", "agent"] {
            let result = lab(&["replay", &path, "--json", "--limit", "3/h log", "--by", by]).json();
            assert_eq!(
                (&result["lines"]["requests"], &result["lines"]["bad"]),
                (&json!(30), &json!(0)),
                "{server}"
            );
            let expected = by_hand(by, missing.contains(&by));
            let column = &result["columns"][0];
            let refused: u64 = expected.values().map(|(_, refused)| refused).sum();
            assert_eq!(
                (&column["refused"], &column["keys"]),
                (&json!(refused), &json!(expected.len())),
                "{server} {by}"
            );
            let count = |name: &str, key: &Value| key[name].as_u64().unwrap();
            let of_key = |key: &Value| {
                // Servers escape quotes in their own ways.
                let name = key["key"].as_str().unwrap().replace(r"\\x22", "\"").replace("\\\\\"", "\"");
                (name, (count("requests", key), count("refused", key)))
            };
            let found: BTreeMap<_, _> = column["top"].as_array().unwrap().iter().map(of_key).collect();
            let expected: BTreeMap<_, _> =
                expected.into_iter().filter(|(_, (_, refused))| *refused > 0).collect();
            assert_eq!(found, expected, "{server} {by}");
        }
    }
}

/// An attempt to tell them apart by the first line must not choose another format for a log of one of them.
#[test]
fn formats_of_real_servers_are_told_apart() {
    for (server, format) in [
        ("nginx", "combined"),
        ("apache", "combined"),
        ("apache-vhost", "combined"),
        ("lighttpd", "combined"),
        ("varnish", "combined"),
        ("haproxy", "haproxy"),
        ("caddy", "json"),
        ("squid", "squid"),
        ("envoy", "envoy"),
    ] {
        let path = format!("{}/tests/logs/{server}.log", env!("CARGO_MANIFEST_DIR"));
        let result = lab(&["replay", &path, "--json", "--limit", "3/h log"]).json();
        assert_eq!(result["lines"]["formats"], json!([format]), "{server}");
    }
}
