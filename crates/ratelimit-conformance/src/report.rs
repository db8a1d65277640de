//! What came of a run.

use std::io::Write;
use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

use crate::BoxError;

/// What came of a case on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store does what the case asks for.
    Passed,
    /// It does not.
    Failed(String),
    /// The subject does not offer what the case needs, although it could. Fails the run unless skips are allowed.
    Skipped(String),
    /// The store does not promise what the case asks for.
    NotApplicable(String),
}

/// One case on one target.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// The subject's name.
    pub target: String,
    /// The case's name.
    pub case: String,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// What came of a run: every case on every target, in the order of the suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One entry for each case on each target.
    pub cases: Vec<CaseReport>,
    /// How many cases have not been run: others failed before ([`Suite::fail_fast`](crate::Suite::fail_fast)), or the run
    /// was ended while this report was written.
    pub not_run: usize,
}

/// How many cases ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped.
    pub skipped: usize,
    /// Not applicable.
    pub not_applicable: usize,
}

#[derive(Serialize)]
struct Line<'a> {
    target: &'a str,
    case: &'a str,
    outcome: &'static str,
    reason: Option<&'a str>,
    milliseconds: u64,
}

#[derive(Serialize)]
struct Document<'a> {
    cases: Vec<Line<'a>>,
    totals: Totals,
    not_run: usize,
}

impl<'a> Line<'a> {
    fn of(case: &'a CaseReport) -> Self {
        Self {
            target: &case.target,
            case: &case.case,
            outcome: case.outcome.word(),
            reason: case.outcome.reason(),
            milliseconds: u64::try_from(case.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Outcome {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::NotApplicable(_) => "not applicable",
        }
    }

    /// Why it did not pass.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Failed(reason) | Self::Skipped(reason) | Self::NotApplicable(reason) => Some(reason),
        }
    }
}

impl Report {
    /// How many cases ended in which way.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for case in &self.cases {
            let count = match case.outcome {
                Outcome::Passed => &mut totals.passed,
                Outcome::Failed(_) => &mut totals.failed,
                Outcome::Skipped(_) => &mut totals.skipped,
                Outcome::NotApplicable(_) => &mut totals.not_applicable,
            };
            *count += 1;
        }
        totals
    }

    /// Whether something was executed, nothing failed and nothing was skipped.
    pub fn is_success(&self) -> bool {
        self.is_success_but_for_skips() && self.totals().skipped == 0
    }

    /// Whether something was executed and nothing failed.
    pub fn is_success_but_for_skips(&self) -> bool {
        let totals = self.totals();
        totals.passed > 0 && totals.failed == 0
    }

    /// Writes the report as JSON: an object with `cases`, each with target, case, outcome, reason and milliseconds,
    /// `totals`, and `not_run`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, to: impl Write) -> Result<(), BoxError> {
        let cases = self.cases.iter().map(Line::of).collect();
        Ok(serde_json::to_writer_pretty(
            to,
            &Document { cases, totals: self.totals(), not_run: self.not_run },
        )?)
    }

    /// Writes the report in JUnit's format, a test suite for each target. What is not applicable counts as skipped
    /// there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_junit(&self, to: impl Write) -> Result<(), BoxError> {
        let mut suites: Vec<TestSuite> = Vec::new();
        for case in &self.cases {
            let place = suites.iter().position(|suite| suite.name.as_str() == case.target);
            let place = place.unwrap_or_else(|| {
                suites.push(TestSuite::new(case.target.as_str()));
                suites.len() - 1
            });
            suites[place].add_test_case(test_case(case));
        }
        let mut report = quick_junit::Report::new("ratelimit-conformance");
        report.add_test_suites(suites);
        Ok(report.serialize(to)?)
    }
}

fn test_case(case: &CaseReport) -> TestCase {
    let mut status = match case.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::Failed(_) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Outcome::Skipped(_) | Outcome::NotApplicable(_) => TestCaseStatus::skipped(),
    };
    if let Some(reason) = case.outcome.reason() {
        status.set_message(reason);
    }
    let mut test = TestCase::new(case.case.as_str(), status);
    test.set_time(case.took);
    test
}
