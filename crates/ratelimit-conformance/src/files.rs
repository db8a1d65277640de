//! The report files. They are updated while the suite runs, so a killed run leaves its results.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::BoxError;
use crate::progress::Progress;
use crate::report::{CaseReport, Report};

type Format = fn(&Report, &mut dyn Write) -> Result<(), BoxError>;

/// A file in one of the formats.
struct Output {
    path: PathBuf,
    format: Format,
}

/// A file for each requested format.
pub(crate) struct Files {
    outputs: Vec<Output>,
    /// The results so far.
    report: Report,
    written: Instant,
    /// Whether there are new results since then.
    stale: bool,
}

/// The interval between updates: writing takes longer than most cases.
const EVERY: Duration = Duration::from_secs(1);

impl Files {
    /// Creates the files for JSON and for JUnit. Fails if a file cannot be written.
    pub(crate) fn new(json: Option<&PathBuf>, junit: Option<&PathBuf>) -> Result<Self, BoxError> {
        let json = json.map(|path| Output { path: path.clone(), format: |report, to| report.write_json(to) });
        let junit =
            junit.map(|path| Output { path: path.clone(), format: |report, to| report.write_junit(to) });
        let outputs = json.into_iter().chain(junit).collect();
        let mut files = Self { outputs, report: Report::default(), written: Instant::now(), stale: false };
        files.keep_up()?;
        Ok(files)
    }

    /// Writes the whole report.
    pub(crate) fn write(&self, report: &Report) -> Result<(), BoxError> {
        self.outputs.iter().try_for_each(|output| output.write(report))
    }

    /// Writes the results so far.
    fn keep_up(&mut self) -> Result<(), BoxError> {
        (self.written, self.stale) = (Instant::now(), false);
        self.outputs
            .iter()
            .filter(|output| output.is_file())
            .try_for_each(|output| output.write(&self.report))
    }
}

impl Progress for Files {
    fn begin(&mut self, total: usize) {
        self.report.not_run = total;
    }

    fn done(&mut self, case: &CaseReport) {
        self.report.not_run -= 1;
        self.report.cases.push(case.clone());
        self.stale = true;
    }

    fn tick(&mut self) {
        if self.stale && self.written.elapsed() >= EVERY {
            // An error happens again at the end of the run, and is reported there.
            let _ = self.keep_up();
        }
    }
}

impl Output {
    /// Whether the file can be rewritten. Terminals and pipes cannot.
    fn is_file(&self) -> bool {
        self.path.is_file() || !self.path.exists()
    }

    fn write(&self, report: &Report) -> Result<(), BoxError> {
        let written = if self.is_file() {
            self.replace(report)
        } else {
            File::create(&self.path)
                .map_err(BoxError::from)
                .and_then(|mut file| (self.format)(report, &mut file))
        };
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()).into())
    }

    /// Writes a temporary file first, so the file is complete whenever the run is killed.
    fn replace(&self, report: &Report) -> Result<(), BoxError> {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mut mirrored = path.clone().into_os_string();
        mirrored.push(".part");
        let mut file = BufWriter::new(File::create(&mirrored)?);
        (self.format)(report, &mut file)?;
        file.flush()?;
        Ok(fs::rename(&mirrored, &path)?)
    }
}
