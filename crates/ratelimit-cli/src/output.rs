//! What commands print: tables for people, or one JSON object on each line.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::status::KeyStatus;
use crate::table::Table;
use crate::time_text::human_or_never;

/// Writes a line to standard error. If nobody reads it, there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Standard output.
pub(crate) struct Output {
    json: bool,
    has_printed: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, has_printed: false }
    }

    /// Prints `value` as JSON, or the text that `people` returns, after a blank line if it is not the first text.
    pub(crate) fn print(
        &mut self,
        value: &impl Serialize,
        people: impl FnOnce() -> String,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, value)?;
            writeln!(out)?;
        } else {
            let gap = if self.has_printed { "\n" } else { "" };
            write!(out, "{gap}{}", people())?;
        }
        self.has_printed = true;
        out.flush()
    }

    /// Clears the screen if the output is text on a terminal.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.json && out.is_terminal() {
            self.has_printed = false;
            write!(out, "\x1b[H\x1b[2J")?;
        }
        Ok(())
    }
}

/// The status of a key as a table.
pub(crate) fn key_table(status: &KeyStatus) -> String {
    let mut table = Table::new(&["LIMIT", "QUOTA", "BURST", "USED", "REMAINING", "RESET IN", "RETRY AFTER"]);
    for row in &status.limits {
        table.row([
            row.limit.clone(),
            row.quota.to_string(),
            row.burst.map_or("-".to_owned(), |burst| burst.to_string()),
            row.used.to_string(),
            row.remaining_text(),
            human_or_never(row.reset_after),
            human_or_never(row.retry_after),
        ]);
    }
    format!("{}\n{table}", status.key)
}
