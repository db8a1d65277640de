//! A store on a server, as a row of the list in `mod.rs`.

use anyhow::Result;

use crate::session::Session;

/// A store on a server.
pub(crate) struct Store {
    /// Its name, which is that of its server in the testbed.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Ours first, then the others.
    pub(crate) contestants: &'static [&'static str],
    /// The contestant that ratios refer to.
    pub(crate) baseline: &'static str,
    /// Measures the memory of logs, if the server reports the memory of a key.
    pub(crate) log: Option<LogFamily>,
    /// Connects a contestant to a URL and prepares measurements of the given length in milliseconds.
    pub(crate) open: fn(&str, &str, u64) -> Result<Box<dyn Session>>,
}

/// The family that measures the memory of logs.
#[derive(Clone, Copy)]
pub(crate) struct LogFamily {
    pub(crate) name: &'static str,
    /// Opens a session on a URL that logs about the given number of units at each step.
    pub(crate) weigh: fn(&str, u64) -> Result<Box<dyn Session>>,
}
