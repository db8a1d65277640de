//! Asks before something is done that cannot be undone.

use std::fmt;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

/// The standard input is not a terminal, so there is nobody to ask.
#[derive(Debug)]
pub(crate) struct NoTerminal;

impl fmt::Display for NoTerminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot ask whether to reset, because the standard input is not a terminal: add --yes to reset without asking")
    }
}

impl std::error::Error for NoTerminal {}

/// Asks on the terminal; anything but `y` or `yes` means no.
pub(crate) fn confirm(question: &str) -> anyhow::Result<bool> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Err(NoTerminal.into());
    }
    // Not on the standard output, which may be a file.
    let mut out = io::stderr().lock();
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
