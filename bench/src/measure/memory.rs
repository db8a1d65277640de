//! The memory of this process.

use anyhow::{Context as _, Result};

/// Resident bytes.
pub(super) fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("resident memory is read from /proc")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok());
    kibibytes.map(|number: u64| number * 1_024).context("/proc/self/status has no VmRSS")
}
