//! The commands.

mod compare;
mod generate;
mod kept;
mod log;
mod measure;
mod output;
mod replay;
mod report;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};
use output::say;

/// Runs the command with the arguments of the process, and returns its exit code: 0 if all went well, or 1 after an
/// error. Arguments that cannot be read, `--help` and `--version` end the process: with 2, or with 0. `allocated` returns
/// how many bytes the program has allocated.
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
        // The reader of the output, such as `head`, has closed it. This is not an error.
        return ExitCode::SUCCESS;
    }
    say(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
