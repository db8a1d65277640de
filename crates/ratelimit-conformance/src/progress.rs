//! Progress while the suite runs.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::CaseReport;

/// Observes a run.
pub(crate) trait Progress {
    /// The run begins with this number of cases.
    fn begin(&mut self, _total: usize) {}
    /// A case has ended.
    fn done(&mut self, _case: &CaseReport) {}
    /// Called at least once a second.
    fn tick(&mut self) {}
    /// The run has ended.
    fn end(&mut self) {}
}

/// Shows nothing.
pub(crate) struct Silent;

impl Progress for Silent {}

/// Two observers.
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

/// Shows a bar on a terminal, or else prints a line for each case.
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
