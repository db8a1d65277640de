//! Everything works in a tiny form: the measurements in process, the report, the pictures.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

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

/// Runs the program in the tiny form, and returns its report and the folder with its pictures.
fn run(name: &str, families: &[&str]) -> (Value, PathBuf) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let report = folder.join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-bench"));
    command.arg("--tiny").arg("--report").arg(&report).arg("--pictures").arg(&folder).args(families);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&report).expect("a report");
    (serde_json::from_str(&text).expect("JSON"), folder)
}

fn check(report: &Value, folder: &std::path::Path) -> usize {
    let tables = report["tables"].as_array().expect("tables");
    for table in tables {
        let name = table["name"].as_str().expect("a name");
        assert!(folder.join(format!("{name}.svg")).exists(), "no picture of {name}");
        for row in table["rows"].as_array().expect("rows") {
            let contestant = row["contestant"].as_str().expect("a contestant");
            for sample in row["samples"].as_array().expect("samples") {
                let median = sample["median"].as_f64();
                let may_be_absent = contestant == "limitador" && name == "memory";
                assert!(
                    may_be_absent || median.is_some_and(|median| median >= 0.0),
                    "{name}, {contestant}: {sample}"
                );
            }
        }
    }
    tables.len()
}

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
fn every_server_has_figures_and_pictures() {
    let (report, folder) = run("servers", &["redis", "redis-log", "memcached", "postgres"]);
    assert_eq!(check(&report, &folder), 3 + 1 + 3 + 3);
}

#[test]
fn unknown_families_are_an_error_that_lists_the_known_ones() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ratelimit-bench")).arg("nonsense").output().expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("hot-2"));
}
