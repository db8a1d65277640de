//! `cargo xtask simulate`: fleets of nodes that count together, on a manual clock.

use anyhow::{Result, ensure};
use clap::Args;

use crate::step::shown;
use crate::workspace::cargo;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Number of seeds to run.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    seeds: u64,
    /// Run only this seed.
    #[arg(long, value_name = "X", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run only one mode: leases, replicated or synced.
    #[arg(long, value_name = "NAME")]
    mode: Option<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut command = cargo();
    // Optimised, but with all checks, because thousands of fleets take long.
    command.args(["test", "--profile", "simulation", "--package", "ratelimit-cluster"]);
    command.args(["--test", "simulation", "--"]);
    if let Some(mode) = &arguments.mode {
        command.args(["--mode", mode]);
    }
    match arguments.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seeds", &arguments.seeds.to_string()]),
    };
    println!("$ {}", shown(&command));
    let status = command.status()?;
    ensure!(status.success(), "{} ended with {status}", shown(&command));
    Ok(())
}
