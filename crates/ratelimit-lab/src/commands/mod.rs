//! The commands.

mod compare;
mod generate;
mod log;
mod measure;
mod replay;
mod report;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use serde::Serialize;

use crate::args::{Args, Command};

/// Runs the command with the arguments of the process, and returns its exit code: 0 if all went well, 1 after an error in the
/// input or a limit, 2 for wrong usage. `allocated` says how many bytes the program has allocated.
#[must_use]
pub fn run(allocated: fn() -> usize) -> ExitCode {
    let done = match Args::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Compare(args) => compare::run(&args, allocated),
        Command::Measure(args) => measure::run(&args),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    let is_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().any(|error| error.downcast_ref().is_some_and(is_pipe)) {
        // Whoever read the output, such as `head`, has seen enough.
        return ExitCode::SUCCESS;
    }
    say(&format!("error: {error:#}"));
    ExitCode::FAILURE
}

/// Writes a line to standard error, unless that is closed.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output: cannot be written")
}

/// The same, a value on a line.
fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}

/// Checks that a file can be written: before a log is read, which may take minutes. Pipes are not opened, since that can be done
/// only once.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    let found = fs::metadata(path);
    if found.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("{}: cannot be written", path.display()))?;
    if found.is_err() {
        fs::remove_file(path)?;
    }
    Ok(())
}
