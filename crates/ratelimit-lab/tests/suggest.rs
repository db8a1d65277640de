//! Suggestions, verified by replaying them.

mod common;

use common::{lab, lab_with};
use ratelimit_core::Limit;
use serde_json::Value;

/// Replays generated traffic against a limit, and returns its refused requests and refused keys.
fn refused(limit: &str, model: &[&str]) -> (u64, u64) {
    let result = lab(&[&["replay", "--json", "--limit", limit], model].concat()).json();
    let column = &result["columns"][0];
    (column["refused"].as_u64().unwrap(), column["keys_refused"].as_u64().unwrap())
}

fn suggestions(limits: &[&str], share: &str, model: &[&str]) -> Vec<Value> {
    let limits: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let result = lab(&[&["replay", "--json", "--suggest", share], &limits[..], model].concat()).json();
    result["suggestions"].as_array().unwrap().clone()
}

fn count(value: &Value, name: &str) -> (u64, u64) {
    (value[name]["requests"].as_u64().unwrap(), value[name]["keys"].as_u64().unwrap())
}

#[test]
fn a_suggestion_refuses_at_most_the_share_and_one_less_does_not() {
    let model = ["--model", "bursts", "--requests", "10000", "--keys", "200"];
    let limits = [
        "1/min",
        "1/min fixed",
        "1/min log",
        "60/min burst 5",
        "60/min queue burst 5",
        "10/h precision 1m",
        "1/s staggered",
    ];
    for (share, most) in [("1%", 100), ("0.5% of requests", 50), ("0%", 0)] {
        for suggestion in suggestions(&limits, share, &model) {
            let limit = suggestion["limit"].as_str().unwrap();
            let (requests, keys) = refused(limit, &model);
            assert_eq!(
                (requests, keys),
                count(&suggestion, "refused"),
                "{limit}: the replay in order of time agrees"
            );
            assert!(requests <= most, "{limit} refuses {requests} of at most {most}");
            assert!(count(&suggestion, "refused_by_one_less").0 > most, "{suggestion}");
            // The limit with a quota of one less, as a replay sees it.
            let (quota, rest) = limit.split_once('/').unwrap();
            let quota: u64 = quota.parse().unwrap();
            if !rest.contains("burst") {
                let less = refused(&format!("{}/{rest}", quota - 1), &model);
                assert_eq!(less, count(&suggestion, "refused_by_one_less"), "{limit}");
            }
        }
    }
}

#[test]
fn a_proposed_queue_has_immediate_units_in_proportion() {
    let model = ["--model", "bursts", "--requests", "10000", "--keys", "200"];
    let limits = ["60/min queue burst 10 immediate 5", "60/min queue burst 10 immediate 10", "60/min queue"];
    let proposed: Vec<Limit> = suggestions(&limits, "1%", &model)
        .iter()
        .map(|suggestion| suggestion["limit"].as_str().unwrap().parse().unwrap())
        .collect();
    let immediate: Vec<Option<u64>> = proposed.iter().map(Limit::immediate).collect();
    let quota = |index: usize| proposed[index].quota();
    assert!(quota(0) > 60, "{proposed:?}");
    assert_eq!(immediate, [Some((quota(0) * 5).div_ceil(60)), Some(proposed[1].burst()), None]);
}

#[test]
fn a_share_of_the_keys_bounds_the_keys() {
    let model = ["--requests", "20000", "--keys", "200"];
    for suggestion in suggestions(&[], "5% of keys", &model) {
        let limit = suggestion["limit"].as_str().unwrap();
        assert_eq!(suggestion["keys"], 200);
        let (_, keys) = refused(limit, &model);
        assert!(keys <= 10, "{limit} hits {keys} keys");
        assert!(count(&suggestion, "refused_by_one_less").1 > 10, "{suggestion}");
        assert_eq!(suggestion["top"].as_array().unwrap().len() as u64, keys.min(10));
    }
}

#[test]
fn steps_and_totals_have_no_suggestion() {
    for limit in ["8/h step 15min", "5 in total"] {
        lab(&["replay", "--requests", "10", "--suggest", "1%", "--limit", limit])
            .fails(1, "no search for limits of this kind");
    }
}

#[test]
fn calendars_have_no_suggestion() {
    lab(&["replay", "--requests", "10", "--suggest", "1%", "--limit", "5/month"])
        .fails(1, "no search for limits of the calendar");
}

#[test]
fn a_suggestion_without_a_limit_has_the_warnings_of_the_log() {
    let log = "{\"time\":1767607200,\"ip\":\"192.0.2.1\"}\n{\"time\":1767607201}\n";
    let said = |arguments: &[&str]| {
        lab_with(&[&["replay", "-", "--suggest", "1%"], arguments].concat(), log.as_bytes()).stdout
    };
    let together = "1 request without that, counted together as one key; if another field has it, name that with \
                    --ip-field or --by, or leave them out with --skip-missing\n";
    let (missing, coarse) = (format!("By ip: {together}"), "All times are whole seconds");
    let all = said(&["--by", "ip", "--by", "all"]);
    assert!(all.contains(&missing) && all.contains(coarse) && !all.contains("By all:"), "{all}");
    let skipped = said(&["--skip-missing"]);
    assert!(skipped.contains("By ip: 1 request without that, left out\n"), "{skipped}");
    // Said once, in the words for the column, if there is one.
    let column = said(&["--limit", "5/min"]);
    assert!(column.contains(&format!("5/min by ip: {together}")), "{column}");
    assert!(!column.contains(&missing) && !column.contains(coarse), "{column}");
    let skipped = said(&["--limit", "5/min", "--skip-missing"]);
    assert!(skipped.contains("5/min by ip: 1 request without that, left out\n"), "{skipped}");
}

#[test]
fn quotas_that_no_bucket_can_have_are_rounded() {
    let log = "{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"n\":1050000}\n\
               {\"time\":1767610800,\"ip\":\"192.0.2.1\",\"n\":1050000}\n";
    let limit = ["--limit", "100/s burst 100", "--limit", "1/s log"];
    let replay = ["replay", "-", "--json", "--by", "ip", "--cost-field", "n", "--suggest", "1%"];
    let result = lab_with(&[&replay[..], &limit].concat(), log.as_bytes()).json();
    let [suggestion] = &result["suggestions"].as_array().unwrap()[..] else { panic!("{result}") };
    let limit: Limit = suggestion["limit"].as_str().unwrap().parse().unwrap();
    assert_eq!((limit.quota(), limit.burst()), (1_050_000, 1_050_000));
    assert_eq!(count(suggestion, "refused").0, 0);
    assert!(count(suggestion, "refused_by_one_less").0 > 0, "{suggestion}");
    let reasons = result["not_suggested"].as_array().unwrap();
    assert!(reasons[0].as_str().unwrap().contains("1/s log: no quota up to 1000000"), "{reasons:?}");
}

#[test]
fn nothing_is_proposed_without_requests() {
    let log = "{\"time\":1767607200}\n";
    let replay = ["replay", "-", "--json", "--by", "user", "--skip-missing", "--suggest", "1%"];
    let result = lab_with(&replay, log.as_bytes()).json();
    assert!(result["suggestions"].as_array().unwrap().is_empty(), "{result}");
    let reasons = result["not_suggested"].to_string();
    assert!(reasons.contains("1/min: there are no requests"), "{reasons}");
}
