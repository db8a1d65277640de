//! `cargo xtask faults`: builds the program that fails servers, and runs it.

use std::path::{PathBuf, absolute};

use anyhow::{Result, ensure};
use clap::Args;

use crate::settings::Install;
use crate::step::shown;
use crate::workspace::cargo;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The stores and their servers; all by default. An unknown name lists the known ones.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// About how long the run takes in total, without the starts of servers. Each target has at least one fault.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// What the plan is made from; by default another one each time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the plan without running it.
    #[arg(long)]
    plan: bool,
    /// Write all figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    install: Install,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut command = cargo();
    // Not optimised, but with all checks: the servers are what takes time.
    command.args(["run", "--quiet", "--package", "ratelimit-faults", "--"]);
    command.args(&arguments.targets).args(["--seconds", &arguments.seconds.to_string()]);
    command.args(arguments.plan.then_some("--plan"));
    if let Some(seed) = arguments.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(file) = &arguments.report {
        // The program runs in another directory.
        command.arg("--report").arg(absolute(file)?);
    }
    let mut command = arguments.install.apply_to(command);
    let status = command.status()?;
    ensure!(status.success(), "{} ended with {status}", shown(&command));
    Ok(())
}
