//! Writes the output of the commands, and checks that files can be written.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

/// Writes a line to standard error, unless that is closed.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output: cannot be written")
}

/// Writes a value as one line of JSON to standard output.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}

/// Checks that a file can be written, before a log is read, which can take minutes. A file that does not exist is created
/// and removed. Pipes and devices are not opened, since a pipe can be opened only once.
pub(super) fn check_writable(path: &Path) -> anyhow::Result<()> {
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
