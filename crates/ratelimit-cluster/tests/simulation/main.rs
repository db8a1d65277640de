//! Fleets of 2 to 50 nodes on a clock that is moved by hand; the same seed is the same run.
//!
//! `--seeds N` runs so many (300 by default), `--seed X` runs that one alone, `--mode NAME` one mode alone.
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

const MODES: [(&str, Run); 3] =
    [("leases", leases::run_all), ("replicated", replicated::run_all), ("synced", synced::run_all)];

/// Runs so many seeds from the first on; how many failed.
type Run = fn(u64, u64) -> u64;

fn main() -> ExitCode {
    let Arguments { first, count, mode } = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("error: {problem}; --seeds N, --seed X and --mode NAME are understood");
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
