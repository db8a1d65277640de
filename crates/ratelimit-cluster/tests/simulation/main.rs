//! Fleets of 2 to 50 nodes on a clock that is moved by hand; the same seed is the same run.
//!
//! `--seeds N` runs so many (300 unless told), `--seed X` runs that one alone.
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

mod leases;
mod link;
mod random;
mod verdict;

use std::process::ExitCode;

use crate::leases::Found;

const SEEDS: u64 = 300;

fn main() -> ExitCode {
    let (first, count) = match arguments() {
        Ok(range) => range,
        Err(problem) => {
            eprintln!("error: {problem}; --seeds N and --seed X are understood");
            return ExitCode::FAILURE;
        }
    };
    let mut all = Found::default();
    let mut failed = 0;
    for seed in first..first.saturating_add(count) {
        let found = leases::run(seed);
        if found.excess > 0 {
            failed += 1;
            println!("FAIL leases --seed {seed}: {} units beyond the limit, {found:?}", found.excess);
        }
        all = Found {
            claims: all.claims + found.claims,
            admitted: all.admitted + found.admitted,
            errors: all.errors + found.errors,
            local: all.local + found.local,
            excess: all.excess.max(found.excess),
        };
        let done = seed - first + 1;
        if done.is_multiple_of(1_000) {
            println!("leases: {done} of {count} seeds");
        }
    }
    println!("leases: {count} seeds, at most {} units beyond the limit; {all:?}", all.excess);
    // A run in which nothing was leased would prove nothing.
    let is_vacuous = count >= 100 && (all.admitted * 5 < all.claims || all.local * 10 < all.admitted);
    if is_vacuous {
        println!("FAIL leases: too little was admitted or leased for this to prove anything");
        failed += 1;
    }
    let passed = count.saturating_sub(failed);
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first seed, and how many.
fn arguments() -> Result<(u64, u64), String> {
    let mut arguments = std::env::args().skip(1);
    let mut range = (0, SEEDS);
    while let Some(name) = arguments.next() {
        let number = arguments.next().and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| format!("{name} needs a number"))?;
        match name.as_str() {
            "--seeds" => range.1 = number,
            "--seed" => range = (number, 1),
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(range)
}
