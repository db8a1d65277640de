//! `cargo xtask bench`: builds the benchmark and runs it.

use std::path::{Path, PathBuf, absolute};

use anyhow::{Result, ensure};
use clap::Args;

use crate::settings::Install;
use crate::step::shown;
use crate::workspace::cargo;

#[derive(Args)]
pub(crate) struct Arguments {
    /// What to measure; everything by default. An unknown name lists the known ones.
    #[arg(value_name = "FAMILY")]
    families: Vec<String>,
    /// Measure less, in a few minutes.
    #[arg(long)]
    quick: bool,
    /// Write all figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Draw a chart of each table into this directory.
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Write the results to docs/benchmarks.md, with their charts.
    #[arg(long)]
    write_docs: bool,
    #[command(flatten)]
    install: Install,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "ratelimit-bench", "--features", "peers", "--"]);
    command.args(&arguments.families);
    command.args(arguments.quick.then_some("--quick"));
    command.args(arguments.write_docs.then_some("--write-docs"));
    let paths = [("--report", &arguments.report), ("--pictures", &arguments.pictures)];
    for (option, path) in paths {
        if let Some(path) = path {
            command.arg(option).arg(from_here(path)?);
        }
    }
    let mut command = arguments.install.apply_to(command);
    let status = command.status()?;
    ensure!(status.success(), "{} ended with {status}", shown(&command));
    Ok(())
}

/// The program runs in another directory.
fn from_here(path: &Path) -> Result<PathBuf> {
    Ok(absolute(path)?)
}
