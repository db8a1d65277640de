//! What depends on when requests end: concurrency limits, and true costs.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::lab_with;
use serde_json::{Value, json};

/// A request: when it begins and how long it takes, in milliseconds, and whose it is.
type Request = (u64, u64, u32);

/// Requests of three clients, of up to five seconds each, except for one that takes five minutes.
fn requests() -> Vec<Request> {
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut begin = 1_767_607_200_001;
    let mut all = vec![(1_767_607_200_000, 300_000, 9)];
    for _ in 0..2_000 {
        begin += 1 + random(300);
        all.push((begin, 1 + random(5_000), u32::try_from(random(3)).unwrap()));
    }
    all.push((1_767_607_499_000, 1, 9));
    all.push((1_767_607_501_000, 1, 9));
    all.sort_unstable();
    all
}

/// How many requests of each client are refused if at most this many of it may be in progress: counted by a list.
fn refused_by_hand(requests: &[Request], most: usize) -> BTreeMap<u32, u64> {
    let (mut ends, mut refused) = (BTreeMap::<u32, Vec<u64>>::new(), BTreeMap::new());
    for (begin, duration, client) in requests {
        let ends = ends.entry(*client).or_default();
        ends.retain(|end| end > begin);
        match ends.len() < most {
            true => ends.push(begin + duration),
            false => *refused.entry(*client).or_default() += 1,
        }
    }
    refused
}

/// Lines with the time at which requests begin, or in the order in which they end and with that time.
fn lines(requests: &[Request], are_ends: bool) -> String {
    let mut requests = requests.to_vec();
    if are_ends {
        requests.sort_by_key(|(begin, duration, _)| begin + duration);
    }
    let line = |(begin, duration, client): &Request| {
        let time = begin + if are_ends { *duration } else { 0 };
        format!(
            "{{\"time\":{time},\"ip\":\"192.0.2.{client}\",\"request_time\":{}.{:03}}}\n",
            duration / 1_000,
            duration % 1_000
        )
    };
    requests.iter().map(line).collect()
}

fn refused(column: &Value) -> BTreeMap<u32, u64> {
    let top = column["top"].as_array().unwrap().iter();
    let client = |key: &Value| key["key"].as_str().unwrap().rsplit('.').next().unwrap().parse().unwrap();
    top.map(|key| (client(key), key["refused"].as_u64().unwrap())).collect()
}

#[test]
fn concurrency_limits_are_replayed_from_the_beginning_and_the_duration() {
    let requests = requests();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let config = folder.path().join("limits.toml");
    for most in [1, 3, 8] {
        let by_hand = refused_by_hand(&requests, most);
        assert!(most == 8 || by_hand.values().sum::<u64>() > 50, "{by_hand:?}");
        let policy =
            format!("[[policies]]\nname = \"held\"\nkey = \"address\"\nlimit = \"{most} at once\"\n");
        fs::write(&config, policy).unwrap();
        for are_ends in [false, true] {
            fs::write(&path, lines(&requests, are_ends)).unwrap();
            let time_is = if are_ends { "end" } else { "start" };
            let arguments = ["replay", path.to_str().unwrap(), "--json", "--time-is", time_is];
            let limit = format!("{most} at once");
            let limit = ["--limit", &limit, "--limit", "1000/s"];
            let result = lab_with(&[&arguments[..], &limit].concat(), b"").json();
            assert_eq!(refused(&result["columns"][0]), by_hand, "{most} {time_is}");
            assert_eq!(
                (&result["columns"][1]["refused"], &result["without_duration"]),
                (&json!(0), &json!(0))
            );
            assert_eq!(result["columns"][0]["longest_wait"], json!(null), "nobody knows when a request ends");
            let policies = ["--policies", config.to_str().unwrap()];
            let result = lab_with(&[&arguments[..], &policies].concat(), b"").json();
            let mut of_layer = refused(&result["columns"][0]);
            // The layer renews what is held only while it runs: a minute is the lease.
            let mut expected = by_hand.clone();
            of_layer.remove(&9);
            expected.remove(&9);
            assert_eq!(of_layer, expected, "{most} {time_is}");
        }
    }
    assert_eq!(refused_by_hand(&requests, 1)[&9], 1);
}

#[test]
fn without_durations_a_limit_is_skipped_and_the_others_are_replayed() {
    let log = "{\"time\":1767607200.5,\"ip\":\"192.0.2.1\"}\n".repeat(3);
    let arguments = ["--limit", "1 at once", "--limit", "1/min log"];
    let ran = lab_with(&[&["replay", "-"], &arguments[..]].concat(), log.as_bytes());
    assert_eq!(ran.code, 0, "{ran:?}");
    let why = "Not replayed: 1 at once: no request has a duration, so it is not known how many are in progress; name its field \
               with --duration-field";
    assert!(ran.stdout.contains(why), "{ran:?}");
    let result = lab_with(&[&["replay", "-", "--json"], &arguments[..]].concat(), log.as_bytes()).json();
    assert_eq!(result["columns"].as_array().unwrap().len(), 1);
    assert_eq!(result["columns"][0]["refused"], 2);
    let page = lab_with(&["report", "-", "-o", "-", "--limit", "1 at once"], log.as_bytes());
    assert!(page.stdout.contains("No limit could be replayed."), "{page:?}");
    // Another name, a unit, and one request without it.
    let named =
        "{\"time\":1767607200.5,\"ip\":\"192.0.2.1\",\"took\":9000000}\n".repeat(3) + &log[..log.len() / 3];
    let options = ["--duration-field", "took", "--duration-unit", "us", "--time-is", "start"];
    let arguments = ["replay", "-", "--limit", "2 at once"];
    let ran = lab_with(&[&arguments[..], &options].concat(), named.as_bytes());
    assert!(ran.stdout.contains("Without a duration: 1 request, taken to end when they begin"), "{ran:?}");
    let result = lab_with(&[&arguments[..], &options, &["--json"]].concat(), named.as_bytes()).json();
    assert_eq!(result["columns"][0]["refused"], 2);
    lab_with(&["replay", "-", "--limit", "1/s", "--duration-field", "took"], named.as_bytes())
        .fails(1, "--duration-field is for the duration, but nothing");
    for (option, wrong) in [("--duration-unit", "h"), ("--time-is", "noon")] {
        lab_with(&["replay", "-", "--limit", "1/s", option, wrong], b"").fails(2, "write s");
    }
}

/// Formats that have a duration in a place of its own.
#[test]
fn durations_of_servers_are_known() {
    let haproxy = |n: u32| {
        format!(
            "192.0.2.1:{n} [05/Jan/2026:10:00:0{n}.000] in b/s 0/0/0/69/4500 200 5 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\"\n"
        )
    };
    let squid = |n: u32| {
        format!(
            "176760720{}.500   4500 192.0.2.1 TCP_MISS/200 5 GET http://example.org/ - HIER_DIRECT/203.0.113.1 text/html\n",
            n + 4
        )
    };
    let envoy = |n: u32| {
        format!(
            "[2026-01-05T10:00:0{n}.000Z] \"GET / HTTP/1.1\" 200 - 0 5 4500 3 \"192.0.2.1\" \"curl\" \"id\" \"host\" \"10.0.0.2:80\"\n"
        )
    };
    let alb = |n: u32| {
        format!(
            "http 2026-01-05T10:00:0{}.500000Z app/a/5 192.0.2.1:{n} 10.0.0.1:80 0.5 3.0 1.000 200 200 0 5 \"GET http://e.org:80/ HTTP/1.1\" \"curl\" - -\n",
            n + 4
        )
    };
    let combined = |n: u32| {
        format!(
            "192.0.2.1 - - [05/Jan/2026:10:00:0{}.500 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" 4.500\n",
            n + 4
        )
    };
    let traefik = |n: u32| {
        format!(
            "{{\"StartUTC\":\"2026-01-05T10:00:0{n}Z\",\"ClientHost\":\"192.0.2.1\",\"Duration\":4500000000}}\n"
        )
    };
    let iis = |n: u32| format!("2026-01-05 10:00:0{}.5 192.0.2.1 4500\n", n + 4);
    let all = |line: &dyn Fn(u32) -> String| (0..5).map(line).collect::<String>();
    for (log, more) in [
        (all(&haproxy), &[][..]),
        (all(&squid), &[]),
        (all(&envoy), &[]),
        (all(&alb), &[]),
        (all(&combined), &["--duration-field", "after-1"]),
        (all(&traefik), &["--time-is", "start"]),
        ("#Fields: date time c-ip time-taken\n".to_owned() + &all(&iis), &[]),
    ] {
        // They begin one second after another, and each ends after four and a half.
        let result = lab_with(
            &[&["replay", "-", "--json", "--limit", "4 at once", "--limit", "5 at once"], more].concat(),
            log.as_bytes(),
        )
        .json();
        let refused = [0, 1].map(|nth| result["columns"][nth]["refused"].as_u64().unwrap());
        assert_eq!((refused, &result["without_duration"]), ([1, 0], &json!(0)), "{log}");
    }
}

#[test]
fn true_costs_are_settled_by_the_size_the_time_and_a_field() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let policy = |name: &str, settle: &str| {
        format!(
            "[[policies]]\nname = \"{name}\"\nkey = \"address\"\nlimit = \"1000/min log\"\nsettle = \"{settle}\"\n"
        )
    };
    // One a second, each of 400 bytes, 350 ms and 260 tokens: the fourth or the fifth is refused.
    let line = |second: u32| {
        format!(
            "{{\"time\":{},\"ip\":\"192.0.2.1\",\"bytes\":400,\"request_time\":0.350,\"tokens\":260}}\n",
            1_767_607_200 + second
        )
    };
    let log: String = (0..10).map(line).collect();
    for (settle, more, admitted) in [
        ("response-bytes", &[][..], 3),
        ("response-bytes:100", &[], 10),
        ("time:1ms", &[], 3),
        ("handler", &["--settle-field", "tokens"], 4),
        ("handler", &[], 10),
        ("header:x-cost", &[], 10),
    ] {
        fs::write(&config, policy("a", settle)).unwrap();
        let arguments =
            ["replay", "-", "--json", "--policies", config.to_str().unwrap(), "--time-is", "start"];
        let result = lab_with(&[&arguments[..], more].concat(), log.as_bytes()).json();
        assert_eq!(result["columns"][0]["admitted"], admitted, "{settle} {more:?}");
    }
    fs::write(&config, policy("a", "response-bytes")).unwrap();
    let text = lab_with(
        &["replay", "-", "--policies", config.to_str().unwrap()],
        b"{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"request_time\":0.1}\n",
    );
    assert!(text.stdout.contains("Without a size: 1 request, taken as 0 bytes"), "{text:?}");
}

#[test]
fn a_policy_that_cannot_be_replayed_does_not_refuse_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "[[policies]]\nname = \"routed\"\nkey = \"path-template\"\nlimit = \"1/min\"\n";
    let other = "[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"1/min log\"\n";
    let log = "{\"time\":1767607200.5,\"ip\":\"192.0.2.1\"}\n".repeat(3);
    for (text, said, refused) in [
        (text.to_owned(), "Not replayed: ", json!(null)),
        (format!("{text}{other}"), "not replayed are ", json!(2)),
    ] {
        fs::write(&config, text).unwrap();
        let arguments = ["replay", "-", "--policies", config.to_str().unwrap()];
        let ran = lab_with(&arguments, log.as_bytes());
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.contains(said), "{ran:?}");
        assert!(ran.stdout.contains("policy routed: a log does not say which route"), "{ran:?}");
        let result = lab_with(&[&arguments[..], &["--json"]].concat(), log.as_bytes()).json();
        assert_eq!(result["columns"][0]["refused"], refused);
    }
}
