//! `--ip-field`: the field of a log that has the client's address.

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
        format!("{{\"timestamp\":\"2026-01-05T10:00:00.5Z\",\"httpRequest\":{{\"remoteIp\":\"{ip}\"}}}}\n")
    };
    let log = ["192.0.2.1:5555", "192.0.2.1:6666", "192.0.2.2", "192.0.2.2"].map(line).concat();
    let field = ["--ip-field", "httpRequest.remoteIp"];
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
