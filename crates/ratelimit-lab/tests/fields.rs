//! Options that name the fields of a log, and what finds them.

mod common;

use std::fs;

use common::{lab, lab_with};
use serde_json::{Value, json};

/// The keys of a replay by `by` in the order of their names, with the requests of each.
fn keys(by: &str, more: &[&str], log: &str) -> Vec<Value> {
    let arguments = ["replay", "-", "--json", "--limit", "1/h log", "--by", by];
    let result = lab_with(&[&arguments[..], more].concat(), log.as_bytes()).json();
    let top = result["columns"][0]["top"].as_array().unwrap();
    let mut keys: Vec<Value> = top.iter().map(|key| json!([key["key"], key["requests"]])).collect();
    keys.sort_by_key(Value::to_string);
    keys
}

#[test]
fn a_field_of_an_object_can_have_the_address() {
    let line = |ip: &str| {
        format!("{{\"timestamp\":\"2026-01-05T10:00:00.5Z\",\"peer\":{{\"address\":\"{ip}\"}}}}\n")
    };
    let log = ["192.0.2.1:5555", "192.0.2.1:6666", "192.0.2.2", "192.0.2.2"].map(line).concat();
    let field = ["--ip-field", "peer.address"];
    assert_eq!(keys("ip", &field, &log), [json!(["192.0.2.1", 2]), json!(["192.0.2.2", 2])]);
    assert_eq!(keys("ip/24", &field, &log), [json!(["192.0.2.0/24", 4])]);
    assert_eq!(keys("ip", &[], &log), [json!(["-", 4])]);
    let page = [&["report", "-", "-o", "-", "--limit", "1/h log"], &field[..]].concat();
    assert!(lab_with(&page, log.as_bytes()).stdout.contains("192.0.2.2"));
}

#[test]
fn no_other_field_has_the_address_if_one_is_named() {
    let log = "{\"time\":1767607200,\"remote_addr\":\"10.0.0.1\",\"client\":{\"real\":\"192.0.2.1\"}}\n\
               {\"time\":1767607200,\"remote_addr\":\"10.0.0.1\",\"client\":{\"real\":\"192.0.2.1\"}}\n\
               {\"time\":1767607200,\"remote_addr\":\"10.0.0.1\",\"host\":\"192.0.2.7\",\"code\":200}\n\
               {\"time\":1767607200,\"host\":\"192.0.2.7\",\"code\":200}\n";
    let named = [json!(["-", 2]), json!(["192.0.2.1", 2])];
    assert_eq!(keys("ip", &["--ip-field", "client.real"], log), named);
    let usual = "time,ip,real\n1767607200,10.0.0.1,192.0.2.1\n1767607200,10.0.0.2,192.0.2.1\n";
    assert_eq!(keys("ip", &["--ip-field", "real"], usual), [json!(["192.0.2.1", 2])]);
}

#[test]
fn policies_count_by_the_address_in_the_named_field() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "client.trusted_proxies = [\"10.0.0.0/8\"]\n\
                [[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"1/min log\"\n";
    fs::write(&config, text).unwrap();
    let line = |(peer, list): (&str, &str)| {
        format!("{{\"time\":1767607200,\"ip\":\"10.0.0.9\",\"host\":\"{peer}\",\"list\":\"{list}\"}}\n")
    };
    let replay = |more: &[&str], lines: [(&str, &str); 3]| {
        let policies = ["replay", "-", "--json", "--policies", config.to_str().unwrap()];
        let log = lines.map(line).concat();
        let column = lab_with(&[&policies[..], more].concat(), log.as_bytes()).json()["columns"][0].clone();
        (column["refused_by"].clone(), column["keys"].clone())
    };
    let peers = [("192.0.2.1", "-"), ("192.0.2.2", "-"), ("192.0.2.1", "-")];
    assert_eq!(replay(&["--ip-field", "host"], peers), (json!({"a": 1}), json!(2)));
    assert_eq!(replay(&[], peers), (json!({"a": 2}), json!(1)));
    // A list of addresses is a header field of the proxy whose address the log has, too.
    let lists = ["203.0.113.9, 10.0.0.2", "203.0.113.8, 10.0.0.2", "192.0.2.1, 203.0.113.9"];
    let lists = lists.map(|list| ("10.0.0.1", list));
    let options = ["--ip-field", "host", "--header", "x-forwarded-for=list"];
    assert_eq!(replay(&options, lists), (json!({"a": 1}), json!(1)));
}

/// nginx's `main` has X-Forwarded-For last.
#[test]
fn the_client_is_found_in_what_trusted_proxies_report() {
    let line = |(peer, list): (&str, &str)| {
        format!(
            "{peer} - - [05/Jan/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"a \\\"b\\\"\" \"{list}\" 0.01\n"
        )
    };
    let log = [
        ("10.0.0.1", "203.0.113.9"),
        ("10.0.0.2", "198.51.100.1, 203.0.113.9, 10.0.0.7"), // the client has forged the first one
        ("10.0.0.1", "::ffff:203.0.113.9"),
        ("192.0.2.7", "203.0.113.9"), // no proxy is believed that is not trusted
        ("10.0.0.1", "-"),
        ("10.0.0.1", "nonsense"),
        ("10.0.0.1", "2001:db8::1"),
    ]
    .map(line)
    .concat()
    .repeat(2);
    let options = ["--trusted-proxies", "10.0.0.0/8,2001:db8:f::1", "--forwarded-field", "after-1"];
    let expected = [
        json!(["10.0.0.1", 4]),
        json!(["192.0.2.7", 2]),
        json!(["2001:db8::/64", 2]),
        json!(["203.0.113.9", 6]),
    ];
    assert_eq!(keys("ip", &options, &log), expected);
    assert_eq!(keys("ip/24", &options, &log)[3], json!(["203.0.113.0/24", 6]));
    // The same by policies.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "client.trusted_proxies = [\"10.0.0.0/8\"]\n\
                [[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"1/h log\"\n";
    fs::write(&config, text).unwrap();
    let policies = [
        "replay",
        "-",
        "--json",
        "--policies",
        config.to_str().unwrap(),
        "--header",
        "x-forwarded-for=after-1",
    ];
    assert_eq!(lab_with(&policies, log.as_bytes()).json()["columns"][0]["refused_by"], json!({"a": 10}));
    // The list may be the address itself, in front or by name.
    let front = "203.0.113.9, 10.0.0.1 - - [05/Jan/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n\
                 203.0.113.9 - - [05/Jan/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n";
    assert_eq!(keys("ip", &options[..2], front), [json!(["203.0.113.9", 2])]);
    assert_eq!(keys("ip", &[], &front.repeat(2)).len(), 2);
    let named = "{\"time\":1767607200,\"ip\":\"203.0.113.9, 10.0.0.1\"}\n{\"time\":1767607200,\"ip\":\"10.0.0.1\",\"l\":\"203.0.113.9\"}\n";
    let options = ["--trusted-proxies", "10.0.0.0/8", "--forwarded-field", "l"];
    assert_eq!(keys("ip", &options, named), [json!(["203.0.113.9", 2])]);
    let wrong =
        |more: &[&str]| lab_with(&[&["replay", "-", "--limit", "1/h"], more].concat(), front.as_bytes());
    wrong(&["--trusted-proxies", "10.0.0.0/33"]).fails(1, "--trusted-proxies");
    wrong(&["--trusted-proxies", "10.0.0.1", "--by", "all"]).fails(1, "but nothing is counted by ip");
    wrong(&["--forwarded-field", "after-1"]).fails(2, "--trusted-proxies");
}

#[test]
fn fields_of_combined_lines_have_the_names_of_their_places() {
    let log = "192.0.2.1 www.example.org - bob [05/Jan/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\" \"t 1\" 0.01\n\
               192.0.2.2 www.example.org - - [05/Jan/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
        .repeat(2);
    assert_eq!(keys("after-1", &[], &log), [json!(["-", 2]), json!(["t 1", 2])]);
    assert_eq!(keys("after-2", &[], &log), [json!(["-", 2]), json!(["0.01", 2])]);
    assert_eq!(keys("before-2", &[], &log), [json!(["www.example.org", 4])]);
    assert_eq!(keys("before-9", &[], &log), [json!(["-", 4])]);
    // nginx's host and time of a request are often there.
    let between = "192.0.2.1 - [x] y [05/Jan/2026:10:00:00 +0000] www.example.org \"h t\" \"GET /a HTTP/1.1\" 200 5 \"-\" \"curl\"\n\
                   192.0.2.2 - - [05/Jan/2026:10:00:00 +0000] - - \"\\x16\\x03\" 400 5 \"-\" \"-\"\n"
        .repeat(2);
    assert_eq!(keys("between-1", &[], &between), [json!(["-", 2]), json!(["www.example.org", 2])]);
    assert_eq!(keys("between-2", &[], &between), [json!(["-", 2]), json!(["h t", 2])]);
    assert_eq!(keys("between-3", &[], &between), [json!(["-", 4])]);
    assert_eq!(
        keys("ip,user", &[], &between),
        [json!(["192.0.2.1 \"[x] y\"", 2]), json!(["192.0.2.2 -", 2])]
    );
    assert_eq!(keys("path", &[], &between), [json!(["/a", 2]), json!(["\\\\x16\\\\x03", 2])]);
    assert_eq!(keys("between-1", &[], &log), [json!(["-", 4])]);
    // Then there is no other address.
    assert_eq!(keys("ip", &["--ip-field", "after-1"], &log), [json!(["-", 2]), json!(["t 1", 2])]);
    for name in ["after-0", "after-100", "before-x", "between-0"] {
        lab_with(&["replay", "-", "--limit", "1/h", "--by", name], log.as_bytes())
            .fails(1, &format!("no field of the name \"{name}\""));
    }
}

#[test]
fn a_field_that_cannot_have_the_address_is_an_error() {
    let run = |more: &[&str], log: &str| {
        let arguments = ["replay", "-", "--limit", "1/h", "--ip-field", "real"];
        lab_with(&[&arguments[..], more].concat(), log.as_bytes())
    };
    let json = "{\"time\":1767607200,\"real\":\"192.0.2.1\"}\n";
    let combined = "192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let no_name = "the combined log format has no field of the name \"real\", only ip, user";
    run(&[], combined).fails(1, no_name);
    lab_with(&["compare", "-", "--ip-field", "real"], combined.as_bytes()).fails(1, no_name);
    run(&[], "time,ip\n1767607200,192.0.2.1\n").fails(1, "standard input: it has no column \"real\"");
    let nobody = "--ip-field is for the client's address, but nothing is counted by ip";
    for by in ["all", "user", "real"] {
        run(&["--by", by], json).fails(1, nobody);
    }
    lab_with(&["compare", "-", "--by", "all", "--ip-field", "real"], json.as_bytes()).fails(1, nobody);
    assert_eq!(run(&["--by", "all", "--by", "ip/24"], json).code, 0);
    lab(&["replay", "--limit", "1/h", "--ip-field", "real"]).fails(2, "<FILE>");
}

#[test]
fn fields_of_other_names_are_named_by_options() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "[[policies]]\nname = \"a\"\nroutes = [\"POST /login\"]\nkey = \"address\"\nlimit = \"1/min log\"\n\
                refund = [404]\n";
    fs::write(&config, text).unwrap();
    let refused = |more: &[&str], line: &str| {
        let policies = ["replay", "-", "--json", "--policies", config.to_str().unwrap()];
        lab_with(&[&policies[..], more].concat(), line.repeat(4).as_bytes()).json()["columns"][0]["refused"]
            .clone()
    };
    let named = "{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"status\":404,\"path\":\"/\",\"m\":\"POST\",\"p\":\"/login?a\",\"s\":200}\n";
    assert_eq!(refused(&["--method-field", "m", "--path-field", "p", "--status-field", "s"], named), 3);
    assert_eq!(refused(&["--method-field", "m", "--path-field", "p"], named), 0, "refunded");
    assert_eq!(refused(&["--path-field", "p", "--status-field", "s"], named), 0, "no POST");
    // All of the first line of a request has both.
    let line = "{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"l\":\"POST /login?a HTTP/1.1\"}\n";
    assert_eq!(refused(&["--method-field", "l", "--path-field", "l"], line), 3);
    let combined = "192.0.2.1 - - [05/Jan/2026:10:00:00.1 +0000] \"POST /index.php HTTP/1.1\" 200 5 \"-\" \"-\" \"/login?a\"\n";
    assert_eq!(refused(&["--path-field", "after-1"], combined), 3);
    // A field `request` is not what is named.
    let request = "{\"time\":1767607200,\"request\":\"GET /a HTTP/1.1\"}\n";
    assert_eq!(keys("path", &[], &request.repeat(2)), [json!(["/a", 2])]);
    assert_eq!(keys("path", &["--path-field", "p"], &request.repeat(2)), [json!(["-", 2])]);
    for (option, what) in [("--method-field", "method"), ("--status-field", "status")] {
        let arguments = ["replay", "-", "--limit", "1/h", option, "m"];
        let nothing = format!("{option} is for the {what}, but nothing is counted by {what}");
        lab_with(&arguments, named.as_bytes()).fails(1, &nothing);
    }
}

#[test]
fn a_pattern_is_given_by_an_option() {
    let log = "10:00:00 2026-01-05T11:00:00 192.0.2.1 t1\n10:00:00 2026-01-05T11:00:00 192.0.2.1 t2\n";
    let pattern = r"^\S+ (?<at>\S+) (?<ip>\S+) (?<tenant>\S+)";
    let options = ["--pattern", pattern, "--time-field", "at", "--timezone", "+01:00"];
    assert_eq!(keys("ip", &options, log), [json!(["192.0.2.1", 2])]);
    assert_eq!(keys("ip,tenant", &options, &log.repeat(2)).len(), 2);
    let arguments = ["replay", "-", "--json", "--limit", "1/h", "--by", "ip"];
    let result = lab_with(&[&arguments[..], &options].concat(), log.as_bytes()).json();
    assert_eq!(
        (&result["first"], &result["lines"]["formats"]),
        (&json!(1_767_607_200_000_000_000_u64), &json!(["pattern"]))
    );
    let run = |more: &[&str]| lab_with(&[&["replay", "-", "--limit", "1/h"], more].concat(), log.as_bytes());
    run(&["--pattern", "("]).fails(2, "unclosed group");
    run(&["--pattern", pattern, "--format", "csv"]).fails(2, "--format");
    run(&["--timezone", "Mars"]).fails(2, "write a zone as UTC, +02:00 or Europe/Berlin");
    run(&[]).fails(1, "jq -c");
}
