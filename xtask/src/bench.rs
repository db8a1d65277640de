//! `cargo xtask bench`: builds the program that measures, and runs it.

use std::path::{Path, PathBuf, absolute};

use anyhow::{Result, ensure};
use clap::Args;

use crate::settings::Servers;
use crate::step::shown;
use crate::workspace::cargo;

#[derive(Args)]
pub(crate) struct Arguments {
    /// What to measure; everything if nothing is named. A name that does not exist tells those that do.
    #[arg(value_name = "FAMILY")]
    families: Vec<String>,
    /// Less of everything, in a few minutes.
    #[arg(long)]
    quick: bool,
    /// Write all figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Draw a picture of each table into this folder.
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Write the results into docs/benchmarks.md, and their pictures beside it.
    #[arg(long)]
    write_docs: bool,
    #[command(flatten)]
    servers: Servers,
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
    arguments.servers.tell(&mut command);
    let status = command.status()?;
    ensure!(status.success(), "{} ended with {status}", shown(&command));
    Ok(())
}

/// The program runs in another folder.
fn from_here(path: &Path) -> Result<PathBuf> {
    Ok(absolute(path)?)
}
