//! Runs the program in its tiny form.
#![allow(dead_code)] // no test needs all of it

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// An empty folder for the report and the pictures of a run.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The program, which writes its report and its pictures into a folder.
pub(crate) fn program(folder: &Path, families: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-bench"));
    command.arg("--tiny").arg("--report").arg(folder.join("report.json"));
    command.arg("--pictures").arg(folder).args(families);
    command
}

/// The report in a folder.
pub(crate) fn report(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("report.json")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// Runs the program, and returns its report and the folder with its pictures.
pub(crate) fn run(name: &str, families: &[&str]) -> (Value, PathBuf) {
    let folder = folder(name);
    let output = program(&folder, families).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (report(&folder), folder)
}

/// Asserts that each table has figures and a picture, and returns how many tables there are.
pub(crate) fn check(report: &Value, folder: &Path) -> usize {
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
