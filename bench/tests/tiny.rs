//! Everything works in a tiny form: the measurements in process, the report, the pictures.

mod common;

use std::process::Command;

use common::{check, folder, program, report, run};

/// All families without a server.
const FAMILIES: &[&str] = &[
    "hot",
    "hot-2",
    "uniform",
    "zipf",
    "refused",
    "refused-2",
    "new",
    "allocations",
    "mass",
    "growth",
    "log",
    "log-memory",
];

#[test]
fn every_family_in_process_has_figures_and_pictures() {
    let (report, folder) = run("in-process", FAMILIES);
    // Two of the families have two tables.
    assert_eq!(check(&report, &folder), FAMILIES.len() + 2);
    let hot = &report["tables"][0];
    assert_eq!(hot["rows"][0]["contestant"], "ours");
    assert!(hot["rows"][0]["samples"][0]["median"].as_f64().is_some_and(|nanos| nanos > 1.0), "{hot}");
}

#[test]
fn a_server_that_is_not_available_does_not_cost_the_other_figures() {
    let folder = folder("unavailable");
    let mut program = program(&folder, &["hot", "postgres", "uniform"]);
    // Nothing listens there, and nothing else is tried.
    let output = program.env("RATELIMIT_POSTGRES_URL", "postgres://127.0.0.1:1/").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("postgres") && said.contains("127.0.0.1:1"), "{said}");
    let report = report(&folder);
    assert_eq!(check(&report, &folder), 2);
    assert_eq!([&report["tables"][0]["name"], &report["tables"][1]["name"]], ["hot", "uniform"]);
}

#[test]
fn unknown_families_are_an_error_that_lists_the_known_ones() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ratelimit-bench")).arg("nonsense").output().expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("hot-2"));
}
