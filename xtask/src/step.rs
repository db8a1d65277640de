//! One step of a longer run: a command whose tests are counted.
#![allow(clippy::disallowed_methods, reason = "tells people how long a step took")]

use std::io::{BufRead as _, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// The number of tests, and what was not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// What could not run here.
    pub(crate) not_run: Vec<NotRun>,
}

/// Something that could not run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotRun {
    pub(crate) what: String,
    pub(crate) why: String,
    /// Whether it counts as a failure with `--strict`.
    pub(crate) required: bool,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.not_run.extend(other.not_run);
    }
}

/// The outcome of a step.
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) took: Duration,
    pub(crate) totals: Totals,
    pub(crate) error: Option<anyhow::Error>,
}

/// Runs `work`, which counts its tests, as the step `name`.
pub(crate) fn step(
    name: &str,
    place: (usize, usize),
    work: impl FnOnce(&mut Totals) -> Result<()>,
) -> Outcome {
    println!("\n=== [{}/{}] {name}", place.0, place.1);
    let start = Instant::now();
    let mut totals = Totals::default();
    let error = work(&mut totals).err();
    let took = start.elapsed();
    match &error {
        None => println!("=== {name}: ok in {:.1} s", took.as_secs_f64()),
        Some(error) => println!("=== {name}: FAILED after {:.1} s: {error:#}", took.as_secs_f64()),
    }
    Outcome { name: name.to_owned(), took, totals, error }
}

/// Runs `command`, shows its output, and counts the tests that it reports. The error contains what failed tests print, so
/// that it can be read at the end of a long run.
pub(crate) fn run(command: &mut Command, totals: &mut Totals) -> Result<()> {
    println!("$ {}", shown(command));
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| shown(command))?;
    let mut printed = Printed::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("its output")?;
            println!("{line}");
            printed.read(&line);
        }
    }
    let status = child.wait()?;
    *totals += printed.totals;
    ensure!(status.success(), "{} ended with {status}\n{}", shown(command), printed.failures.join("\n"));
    Ok(())
}

/// The output of tests, read line by line.
#[derive(Default)]
pub(crate) struct Printed {
    pub(crate) totals: Totals,
    /// What the tests print about their failures: everything from `failures:` to the result.
    pub(crate) failures: Vec<String>,
    within: bool,
}

impl Printed {
    /// The maximum number of lines on failures to repeat.
    const MOST: usize = 200;

    pub(crate) fn read(&mut self, line: &str) {
        if let Some(counted) = counted(line) {
            self.totals += counted;
        }
        if line == "failures:" {
            self.within = true;
        } else if line.starts_with("test result: ") {
            self.within = false;
        } else if self.within && !line.is_empty() && self.failures.len() < Self::MOST {
            self.failures.push(line.to_owned());
        }
    }
}

/// The command as it would be typed.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let arguments = command.get_args().map(|argument| format!(" {}", argument.to_string_lossy()));
    format!("{program}{}", arguments.collect::<String>())
}

/// The counts in a line such as `test result: ok. 4 passed; 0 failed; 1 ignored; …` or `4 passed, 0 failed, …`.
fn counted(line: &str) -> Option<Totals> {
    let counts = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1,
        None if line.contains(" passed, ") => line,
        None => return None,
    };
    let mut totals = Totals::default();
    for part in counts.split([';', ',']) {
        let (count, what) = part.trim().split_once(' ')?;
        let count = match what {
            "passed" | "failed" | "ignored" | "skipped" => count.parse().ok()?,
            _ => continue,
        };
        match what {
            "passed" => totals.passed = count,
            "failed" => totals.failed = count,
            _ => totals.skipped = count,
        }
    }
    Some(totals)
}

#[cfg(test)]
mod tests {
    use super::{Printed, Totals, counted};

    #[test]
    fn the_output_of_failed_tests_is_kept() {
        let printed = "running 2 tests\ntest one ... ok\ntest two ... FAILED\n\nfailures:\n\n---- two stdout ----\nleft: 1\n\
            \nfailures:\n    two\n\ntest result: FAILED. 1 passed; 1 failed\ntest three ... ok";
        let mut read = Printed::default();
        printed.lines().for_each(|line| read.read(line));
        assert_eq!(read.failures, ["---- two stdout ----", "left: 1", "    two"]);
    }

    #[test]
    fn results_of_tests_are_counted() {
        let line = "test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s";
        assert_eq!(counted(line), Some(Totals { passed: 4, failed: 2, skipped: 1, ..Totals::default() }));
        assert_eq!(
            counted("41 passed, 0 failed, 3 skipped"),
            Some(Totals { passed: 41, skipped: 3, ..Totals::default() })
        );
        assert_eq!(counted("test it_is_ok ... ok"), None);
        assert_eq!(counted("who has passed, has passed"), None);
    }
}
