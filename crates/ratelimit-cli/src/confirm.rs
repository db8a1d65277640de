//! Asks before something is done that cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use crate::args::Args;

const NO_TERMINAL: &str = "cannot ask whether to reset, because the standard input is not a terminal: add --yes to reset without asking";

/// Asks on the terminal; anything but `y` or `yes` means no.
///
/// # Errors
/// If there is nobody to ask, a [`clap::Error`], as of any wrong usage.
pub(crate) fn confirm(question: &str) -> anyhow::Result<bool> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Err(Args::command().error(ErrorKind::MissingRequiredArgument, NO_TERMINAL).into());
    }
    // Not on the standard output, which may be a file.
    let mut out = io::stderr().lock();
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
