//! `compare` and `measure`: what they print.

mod common;

use common::{lab, lab_with};
use serde_json::json;

#[test]
fn all_algorithms_are_compared_on_the_same_requests() {
    let model = ["--model", "boundary", "--requests", "20000", "--keys", "20"];
    let result = lab(&[&["compare", "--json", "--limit", "100/min"], &model[..]].concat()).json();
    assert_eq!(
        (result["requests"].as_u64(), result["keys"].as_u64(), result["by"].as_str()),
        (Some(20_000), Some(20), Some("ip"))
    );
    let algorithms = result["algorithms"].as_array().unwrap();
    let of = |text: &str| {
        algorithms.iter().find(|one| one["limit"] == text).unwrap_or_else(|| panic!("{text}: {result}"))
    };
    assert_eq!(algorithms.len(), 8);
    for one in algorithms {
        assert_eq!(one["admitted"].as_u64().unwrap() + one["refused"].as_u64().unwrap(), 20_000);
        assert!(
            one["bytes_per_key"].as_f64().unwrap() > 24.0 && one["nanos"].as_f64().unwrap() > 0.0,
            "{one}"
        );
    }
    // The limit's worst case: as much again just after the boundary.
    assert!(of("100/min fixed")["overshoot"].as_f64().unwrap() > 1.9);
    assert_eq!(of("100/min log")["overshoot"].as_f64(), Some(1.0));
    assert_eq!(of("100/min log")["trips"]["memcached"], 2);
    // What the log admits is what a replay admits.
    let replayed = lab(&[&["replay", "--json", "--limit", "100/min log"], &model[..]].concat()).json();
    assert_eq!(replayed["columns"][0]["admitted"], of("100/min log")["admitted"]);
}

#[test]
fn the_memory_of_a_key_is_that_of_its_whole_quota() {
    let result = lab(&["compare", "--json", "--requests", "10", "--limit", "400000/h"]).json();
    let algorithms = result["algorithms"].as_array().unwrap();
    let bytes = |limit: &str| {
        algorithms.iter().find(|one| one["limit"] == limit).unwrap()["bytes_per_key"].as_f64().unwrap()
    };
    // A log has eight bytes for each unit. A window has the same size for each quota.
    let each = bytes("400000/h log") / 400_000.0;
    assert!((8.0..20.0).contains(&each), "{each} bytes for each unit");
    assert!(bytes("400000/h fixed") < 200.0, "{result}");
}

#[test]
fn a_log_is_compared_for_each_limit() {
    let log = "{\"time\":1767607200,\"tenant\":\"a\"}\n{\"time\":1767607201,\"tenant\":\"a\"}\n";
    let arguments = ["compare", "-", "--by", "tenant", "--limit", "1/min", "--limit", "50/h"];
    let ran = lab_with(&arguments, log.as_bytes());
    for said in [
        "2 requests of 1 key (tenant) in standard input",
        "Against 1 in any span of 60 s",
        "50/h precision 6min strict",
    ] {
        assert!(ran.stdout.contains(said), "{said}: {ran:?}");
    }
    lab_with(&["compare", "-", "--limit", "2000000/h"], log.as_bytes())
        .fails(1, "not all algorithms can have this quota");
    for limit in ["5 at once", "5/month", "5 in total", "ban 10min after 3 in 1h"] {
        lab_with(&["compare", "-", "--limit", limit], log.as_bytes()).fails(
            1,
            &format!("{limit}: only limits with a quota for a period of one length can be compared"),
        );
    }
    // What is wrong with the log is said here, too.
    let bad = format!("{log}nonsense\n");
    let ran = lab_with(&["compare", "-", "--by", "tenant"], bad.as_bytes());
    assert!(ran.stdout.contains("Left out: 1 bad line"), "{ran:?}");
    assert_eq!(
        lab_with(&["compare", "-", "--json", "--by", "tenant"], bad.as_bytes()).json()["lines"]["bad"],
        1
    );
    // As is what makes the comparison inexact.
    let notes =
        ["By ip: 2 requests without that, counted together as one key; ", "All times are whole seconds"];
    for (arguments, has) in
        [(["--by", "ip", "--limit", "5/s"], true), (["--by", "tenant", "--limit", "5/min"], false)]
    {
        let ran = lab_with(&[&["compare", "-"], &arguments[..]].concat(), log.as_bytes());
        assert_eq!(notes.map(|note| ran.stdout.contains(note)), [has; 2], "{ran:?}");
    }
    let empty = lab_with(&["compare", "-", "--json"], b"").json_of_nothing();
    assert_eq!(empty["requests"], 0);
}

#[test]
fn what_makes_a_comparison_inexact_is_in_its_json() {
    let log = "{\"time\":1767607200,\"ip\":\"a\",\"n\":1}\n{\"time\":1767607300,\"ip\":\"a\",\"n\":\"x\"}\n\
               {\"time\":1767607100}\n";
    let arguments = ["compare", "-", "--json", "--cost-field", "n", "--skip-missing"];
    let json = lab_with(&arguments, log.as_bytes()).json();
    let counts = ["too_late", "without_cost", "unidentified", "whole_seconds"].map(|name| json[name].clone());
    assert_eq!(counts, [json!(1), json!(2), json!({"ip": 1}), json!(true)]);
    assert_eq!((&json["skip_missing"], &json["requests"]), (&json!(true), &json!(2)));
}

#[test]
fn a_measurement_is_of_the_requests_that_it_says() {
    let ran = lab(&["measure", "--requests", "50000", "--sources", "500", "--limit", "20/min"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for said in [
        " sources in a day, seed 1",
        "Every request counts",
        "Refused requests do not count",
        "20/min precision 6s strict",
    ] {
        assert!(ran.stdout.contains(said), "{said}: {ran:?}");
    }
    let json = lab(&["measure", "--requests", "50000", "--traffic", "near", "--json"]).json();
    assert_eq!(json["counted"][0]["limit"], "100/min");
    assert_eq!(json["limited"]["requests"], json["counted"][0]["requests"]);
}
