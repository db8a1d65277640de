//! `generate`: the log that it writes.

mod common;

use common::{lab, lab_with};

#[test]
fn a_generated_log_replays_as_the_generator_itself() {
    let by = ["--by", "ip", "--by", "agent", "--by", "user", "--by", "path"];
    let model = ["--model", "attackers", "--requests", "5000", "--keys", "100", "--seed", "3"];
    let generated = lab(&[&["generate", "--format", "json"], &model[..]].concat());
    assert_eq!(generated.code, 0);
    assert_eq!(
        generated.stderr,
        "generate --model attackers --seed 3 --requests 5000 --keys 100 --rate 50\n"
    );
    assert_eq!(generated.stdout.lines().count(), 5_000);
    let columns = |ran: common::Ran| ran.json()["columns"].clone();
    let limit = ["replay", "--json", "--limit", "10/min"];
    let direct = columns(lab(&[&limit[..], &by[..], &model[..]].concat()));
    let read = columns(lab_with(&[&limit[..], &by[..], &["-"]].concat(), generated.stdout.as_bytes()));
    assert_eq!(direct, read);
    // As in the combined format, except for the times.
    let keys = |columns: &serde_json::Value| [0, 1, 2, 3].map(|at| columns[at]["keys"].clone());
    let combined = lab(&[&["generate"], &model[..]].concat());
    let combined = columns(lab_with(&[&limit[..], &by[..], &["-"]].concat(), combined.stdout.as_bytes()));
    assert_eq!(keys(&direct), keys(&combined));
    let attackers = direct[0]["top"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|key| key["key"].as_str().unwrap().starts_with("203.0.113."));
    assert_eq!(attackers.count(), 3);
}

#[test]
fn the_combined_format_is_written_in_whole_seconds() {
    let ran = lab(&["generate", "--requests", "3", "--rate", "0.5", "--keys", "1"]);
    let first = ran.stdout.lines().next().unwrap();
    assert!(first.starts_with("10.0.0.0 - user0 [05/Jan/2026:00:00:"), "{first}");
    let replayed =
        lab_with(&["replay", "-", "--json", "--limit", "1/min", "--strict"], ran.stdout.as_bytes()).json();
    assert_eq!(replayed["lines"]["requests"], 3);
    assert_eq!(replayed["first"].as_u64().unwrap() % 1_000_000_000, 0);
}

#[test]
fn wrong_numbers_are_errors() {
    lab(&["generate", "--keys", "0"]).fails(1, "there are from 1 to 16777216 keys, not 0");
    lab(&["generate", "--rate=-1"]).fails(1, "requests a second, not -1");
    lab(&["generate", "--rate=0"]).fails(1, "requests a second, not 0");
}
