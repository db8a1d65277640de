//! The results of a run.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::goal::Verdict;
use crate::machine::Machine;
use crate::table::Table;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// The scale of the run.
    pub(crate) scale: &'static str,
    pub(crate) tables: Vec<Table>,
    pub(crate) goals: Vec<Verdict>,
}

impl Report {
    /// Writes the report as JSON.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    }
}
