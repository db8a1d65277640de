//! Writes what the commands say.

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

/// The same, a value on a line.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}

/// Checks that a file can be written: before a log is read, which may take minutes. Pipes are not opened, since that can be done
/// only once.
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
