//! Progress while the suite runs.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::CaseReport;

/// Is told what has been done.
pub(crate) trait Progress {
    /// So many cases will be run.
    fn begin(&mut self, _total: usize) {}
    /// One is done.
    fn done(&mut self, _case: &CaseReport) {}
    /// A second has passed at most.
    fn tick(&mut self) {}
    /// All are done.
    fn end(&mut self) {}
}

/// Says nothing.
pub(crate) struct Silent;

impl Progress for Silent {}

/// Both are told.
impl<A: Progress, B: Progress> Progress for (A, B) {
    fn begin(&mut self, total: usize) {
        self.0.begin(total);
        self.1.begin(total);
    }

    fn done(&mut self, case: &CaseReport) {
        self.0.done(case);
        self.1.done(case);
    }

    fn tick(&mut self) {
        self.0.tick();
        self.1.tick();
    }

    fn end(&mut self) {
        self.0.end();
        self.1.end();
    }
}

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
    fn begin(&mut self, total: usize) {
        self.0.set_length(total as u64);
    }

    fn done(&mut self, case: &CaseReport) {
        self.0.inc(1);
        let line = format!("{} {} {} ({:.1?})", case.outcome.word(), case.target, case.case, case.took);
        if self.0.is_hidden() {
            println!("{line}");
        } else {
            self.0.set_message(line);
        }
    }

    fn end(&mut self) {
        self.0.finish_and_clear();
    }
}
