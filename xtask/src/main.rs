//! `cargo xtask`: everything that is done to this repository.
#![forbid(unsafe_code)]

mod bench;
mod conformance;
mod containers;
mod fleet_bench;
mod http_bench;
mod images;
mod junit;
mod pair;
mod report;
mod services;
mod settings;
mod simulate;
mod step;
mod targets;
mod test;
#[cfg(test)]
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tests, proves and tries out the crates of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything that a change has to pass.
    Test(test::Arguments),
    /// Run the suite for stores on one store, on several, or on all.
    Conformance(conformance::Arguments),
    /// Measure the limiters beside others, and beside what the same client does without them.
    Bench(bench::Arguments),
    /// Measure what the HTTP layer costs, beside the bare service and beside tower_governor.
    HttpBench(http_bench::Arguments),
    /// Measure what an instance serves that counts together with others, beside one that counts alone in memory.
    FleetBench(fleet_bench::Arguments),
    /// Run fleets of nodes that count together through delays, partitions and restarts.
    Simulate(simulate::Arguments),
    /// Start and stop servers for trying things by hand.
    Services(services::Arguments),
    /// Make images of the servers from Debian packages, where Docker has no registry.
    Images(images::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::HttpBench(arguments) => http_bench::run(&arguments),
        Command::FleetBench(arguments) => fleet_bench::run(arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Services(arguments) => services::run(&arguments),
        Command::Images(arguments) => images::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
