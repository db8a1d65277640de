//! The files of the report. They are written while the suite runs, so that a run which is killed leaves what it had.

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
struct Place {
    path: PathBuf,
    format: Format,
}

/// A file for each format that was asked for.
pub(crate) struct Files {
    places: Vec<Place>,
    /// What has ended so far.
    report: Report,
    written: Instant,
    /// Whether something has ended since then.
    stale: bool,
}

/// Writing costs little, but more than a case.
const EVERY: Duration = Duration::from_secs(1);

impl Files {
    /// Files for JSON and for JUnit, if there are names. A name that cannot be written to is found out here.
    pub(crate) fn new(json: Option<&PathBuf>, junit: Option<&PathBuf>) -> Result<Self, BoxError> {
        let json = json.map(|path| Place { path: path.clone(), format: |report, to| report.write_json(to) });
        let junit =
            junit.map(|path| Place { path: path.clone(), format: |report, to| report.write_junit(to) });
        let places = json.into_iter().chain(junit).collect();
        let mut files = Self { places, report: Report::default(), written: Instant::now(), stale: false };
        files.keep_up()?;
        Ok(files)
    }

    /// Writes the whole report.
    pub(crate) fn write(&self, report: &Report) -> Result<(), BoxError> {
        self.places.iter().try_for_each(|place| place.write(report))
    }

    /// Writes what has ended so far.
    fn keep_up(&mut self) -> Result<(), BoxError> {
        (self.written, self.stale) = (Instant::now(), false);
        self.places.iter().filter(|place| place.is_file()).try_for_each(|place| place.write(&self.report))
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
            // What goes wrong here goes wrong again at the end, and is told there.
            let _ = self.keep_up();
        }
    }
}

impl Place {
    /// Whether it can be written more than once: it is not a terminal or a pipe.
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

    /// Writes a file beside it first: whenever the run is killed, the file is whole.
    fn replace(&self, report: &Report) -> Result<(), BoxError> {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mut beside = path.clone().into_os_string();
        beside.push(".part");
        let mut file = BufWriter::new(File::create(&beside)?);
        (self.format)(report, &mut file)?;
        file.flush()?;
        Ok(fs::rename(&beside, &path)?)
    }
}
