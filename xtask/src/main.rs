//! `cargo xtask`: the development commands of this repository.
#![forbid(unsafe_code)]

mod availability;
mod conformance;
mod containers;
mod docker;
mod executables;
mod external_types;
mod fleet_bench;
mod fuzz;
mod http_bench;
mod images;
mod junit;
mod links;
mod package;
mod pair;
mod program;
mod report;
mod rust_version;
mod server_image;
mod services;
mod settings;
mod site;
mod step;
mod targets;
mod test;
#[cfg(test)]
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tests, benchmarks and packages the crates of this repository, and runs servers for them.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all checks that a change has to pass.
    Test(test::Arguments),
    /// Run the conformance suite on one store, on several, or on all.
    Conformance(conformance::Arguments),
    /// Benchmark the limiters against others, and against the same clients without a limiter.
    Bench(program::Arguments),
    /// Benchmark the HTTP layer against the bare service and against tower_governor.
    HttpBench(http_bench::Arguments),
    /// Benchmark an instance that counts together with others against one that counts in its own memory.
    FleetBench(fleet_bench::Arguments),
    /// Benchmark ratelimit-server over each of its protocols, beside another server.
    ServerBench(program::Arguments),
    /// Fail servers at random under load, and check that the stores keep their guarantees.
    Faults(program::Arguments),
    /// Simulate fleets of nodes that count together, with delays, partitions and restarts.
    Simulate(program::Arguments),
    /// Run a fuzz target for long, guided by coverage.
    Fuzz(fuzz::Arguments),
    /// Start and stop servers for manual experiments.
    Services(services::Arguments),
    /// Make the packages of the published crates, build them, and print their sizes.
    Package(package::Arguments),
    /// Build the published crates with their minimum Rust versions.
    RustVersion(rust_version::Arguments),
    /// List the types of other crates in the public APIs, and check them against the allowed ones.
    ExternalTypes(external_types::Arguments),
    /// Build the documentation site into target/site.
    Site,
    /// Build images of the servers from Debian packages, for Docker without a registry.
    Images(images::Arguments),
    /// Build the image of ratelimit-server, and try a container of it.
    ServerImage(server_image::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Bench(arguments) => program::bench(&arguments),
        Command::HttpBench(arguments) => http_bench::run(&arguments),
        Command::FleetBench(arguments) => fleet_bench::run(arguments),
        Command::ServerBench(arguments) => program::server_bench(&arguments),
        Command::Faults(arguments) => program::faults(&arguments),
        Command::Simulate(arguments) => program::simulate(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Services(arguments) => services::run(&arguments),
        Command::Package(arguments) => package::run(&arguments),
        Command::RustVersion(arguments) => rust_version::run(&arguments),
        Command::ExternalTypes(arguments) => external_types::run(&arguments),
        Command::Site => site::run(),
        Command::Images(arguments) => images::run(&arguments),
        Command::ServerImage(arguments) => server_image::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
