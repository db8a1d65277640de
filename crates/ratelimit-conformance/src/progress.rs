//! Progress while the suite runs.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::CaseReport;

/// Is told what has been done.
pub(crate) trait Progress: Sync {
    /// So many cases will be run.
    fn begin(&self, _total: usize) {}
    /// One is done.
    fn done(&self, _case: &CaseReport) {}
    /// All are done.
    fn end(&self) {}
}

/// Says nothing.
pub(crate) struct Silent;

impl Progress for Silent {}

/// A bar on a terminal, a line for each case otherwise.
pub(crate) struct Console(ProgressBar);

impl Console {
    pub(crate) fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {wide_msg}");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }
}

impl Progress for Console {
    fn begin(&self, total: usize) {
        self.0.set_length(total as u64);
    }

    fn done(&self, case: &CaseReport) {
        self.0.inc(1);
        let line = format!("{} {} {} ({:.1?})", case.outcome.word(), case.target, case.case, case.took);
        if self.0.is_hidden() {
            println!("{line}");
        } else {
            self.0.set_message(line);
        }
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
