//! Fleets of 2 to 50 nodes on a clock that is moved by hand; the same seed is the same run.
//!
//! For its options see `HELP`.
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

mod leases;
mod limits;
mod link;
mod overs;
mod post;
mod random;
mod replicated;
mod synced;
mod verdict;

use std::process::ExitCode;

const SEEDS: u64 = 300;

const HELP: &str = "\
--seeds N    Run so many fleets in each mode: 300 by default, 10000 with `cargo xtask simulate`
--seed X     Run only the fleet of this seed
--mode NAME  Run only this mode: leases, replicated or synced";

const MODES: [(&str, Run); 3] =
    [("leases", leases::run_all), ("replicated", replicated::run_all), ("synced", synced::run_all)];

/// Runs so many seeds from the first on; how many failed.
type Run = fn(u64, u64) -> u64;

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let Arguments { first, count, mode } = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("error: {problem}\n{HELP}");
            return ExitCode::FAILURE;
        }
    };
    let (mut runs, mut failed) = (0, 0);
    for (_, run) in MODES.iter().filter(|(name, _)| mode.as_ref().is_none_or(|mode| mode == name)) {
        runs += count;
        failed += run(first, count);
    }
    let passed = runs.saturating_sub(failed);
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Arguments {
    first: u64,
    count: u64,
    mode: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut words = std::env::args().skip(1);
    let mut arguments = Arguments { first: 0, count: SEEDS, mode: None };
    while let Some(name) = words.next() {
        let word = words.next().ok_or_else(|| format!("{name} needs something"))?;
        let number = || word.parse().map_err(|_| format!("{name} needs a number"));
        match name.as_str() {
            "--seeds" => arguments.count = number()?,
            "--seed" => (arguments.first, arguments.count) = (number()?, 1),
            "--mode" if MODES.iter().any(|(name, _)| *name == word) => arguments.mode = Some(word),
            "--mode" => return Err(format!("there is no mode {word:?}")),
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(arguments)
}
