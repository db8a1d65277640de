//! The commands that only build a program of this repository and run it.

use std::env;
use std::ffi::OsString;

use anyhow::{Result, ensure};
use clap::Args;

use crate::step::shown;
use crate::workspace::{cargo, root, target};

/// The program reads all of them itself, also `--help`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// The arguments of the program; `--help` explains them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// `cargo xtask bench`.
pub(crate) fn bench(arguments: &Arguments) -> Result<()> {
    run(&["run", "--release", "--package", "ratelimit-bench", "--features", "peers"], &[], arguments)
}

/// `cargo xtask server-bench`: of the server as it is released.
pub(crate) fn server_bench(arguments: &Arguments) -> Result<()> {
    let built = cargo().args(["build", "--release", "--package", "ratelimit-server"]).status()?;
    ensure!(built.success(), "ratelimit-server was not built");
    let server = target().join("release/ratelimit-server");
    let defaults = ["--server", &server.to_string_lossy()];
    run(&["run", "--release", "--package", "ratelimit-server-bench"], &defaults, arguments)
}

/// `cargo xtask faults`: not optimised, but with all checks, because the servers are what takes time.
pub(crate) fn faults(arguments: &Arguments) -> Result<()> {
    run(&["run", "--quiet", "--package", "ratelimit-faults"], &[], arguments)
}

/// `cargo xtask simulate`: optimised, but with all checks, because thousands of fleets take long.
pub(crate) fn simulate(arguments: &Arguments) -> Result<()> {
    let simulation = ["--package", "ratelimit-cluster", "--test", "simulation"];
    let build = [&["test", "--profile", "simulation"][..], &simulation].concat();
    run(&build, &["--seeds", "10000"], arguments)
}

/// Runs a program, in the caller's directory: the paths among its arguments are relative to that one.
fn run(build: &[&str], defaults: &[&str], arguments: &Arguments) -> Result<()> {
    let mut command = cargo();
    command.current_dir(env::current_dir()?);
    command.args(build).arg("--manifest-path").arg(root().join("Cargo.toml"));
    command.arg("--").args(defaults).args(&arguments.arguments);
    let status = command.status()?;
    ensure!(status.success(), "{} ended with {status}", shown(&command));
    Ok(())
}
