//! The results of a run.

use std::io::Write;
use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

use crate::BoxError;

/// The result of a case on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The store passes the case.
    Passed,
    /// The store fails the case, for this reason.
    Failed(String),
    /// The subject lacks something that the case needs and that it could provide. Fails the run unless skips are allowed.
    Skipped(String),
    /// The store does not promise what the case tests.
    NotApplicable(String),
}

/// One case on one target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseReport {
    /// The subject's name.
    pub target: String,
    /// The case's name.
    pub case: String,
    /// What the case tests.
    pub about: &'static str,
    /// The result.
    pub outcome: Outcome,
    /// How long the case took.
    pub took: Duration,
}

/// The results of a run: every case on every target, in the order of the suite.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// One entry for each case on each target.
    pub cases: Vec<CaseReport>,
    /// The number of cases that did not run, after a failure ([`Suite::fail_fast`](crate::Suite::fail_fast)) or because the
    /// run was killed.
    pub not_run: usize,
    /// The unavailable subjects, each with the reason.
    pub unavailable: Vec<(String, String)>,
}

/// The number of cases for each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Cases that [passed](Outcome::Passed).
    pub passed: usize,
    /// Cases that [failed](Outcome::Failed).
    pub failed: usize,
    /// Cases that were [skipped](Outcome::Skipped).
    pub skipped: usize,
    /// Cases that do [not apply](Outcome::NotApplicable).
    pub not_applicable: usize,
}

#[derive(Serialize)]
struct Row<'a> {
    target: &'a str,
    case: &'a str,
    about: &'a str,
    outcome: &'static str,
    reason: Option<&'a str>,
    milliseconds: u64,
}

#[derive(Serialize)]
struct Document<'a> {
    cases: Vec<Row<'a>>,
    #[serde(with = "Counts")]
    totals: Totals,
    not_run: usize,
    unavailable: Vec<Absent<'a>>,
}

#[derive(Serialize)]
struct Absent<'a> {
    target: &'a str,
    reason: &'a str,
}

/// The serialized form of [`Totals`]: the public API of this crate does not depend on serde.
#[derive(Serialize)]
#[serde(remote = "Totals")]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    not_applicable: usize,
}

impl<'a> Row<'a> {
    fn of(case: &'a CaseReport) -> Self {
        Self {
            target: &case.target,
            case: &case.case,
            about: case.about,
            outcome: case.outcome.word(),
            reason: case.outcome.reason(),
            milliseconds: u64::try_from(case.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Outcome {
    /// The outcome in a word or two.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::NotApplicable(_) => "not applicable",
        }
    }

    /// Why the case did not pass; `None` if it passed.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Failed(reason) | Self::Skipped(reason) | Self::NotApplicable(reason) => Some(reason),
        }
    }
}

impl Report {
    /// For each target with several failed cases, their number and the first of them. The suite is in the order of
    /// dependence: what a case tests, later cases use. So this is the failure to look at first.
    pub fn first_failures(&self) -> Vec<(usize, &CaseReport)> {
        let mut first: Vec<(usize, &CaseReport)> = Vec::new();
        for case in self.cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_))) {
            match first.iter_mut().find(|(_, other)| other.target == case.target) {
                Some((count, _)) => *count += 1,
                None => first.push((1, case)),
            }
        }
        first.retain(|(count, _)| *count > 1);
        first
    }

    /// The number of cases for each outcome.
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

    /// Whether all subjects were available, a case passed, and none failed or was skipped.
    pub fn is_success(&self) -> bool {
        self.is_success_but_for_skips() && self.totals().skipped == 0 && self.unavailable.is_empty()
    }

    /// Whether a case passed and none failed.
    pub fn is_success_but_for_skips(&self) -> bool {
        let totals = self.totals();
        totals.passed > 0 && totals.failed == 0
    }

    /// Writes the report as JSON: an object with `cases`, each with target, case, what it tests, outcome, reason and
    /// milliseconds,
    /// `totals`, `not_run`, and `unavailable`, each with target and reason.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, to: impl Write) -> Result<(), BoxError> {
        let cases = self.cases.iter().map(Row::of).collect();
        let unavailable = self.unavailable.iter().map(|(target, reason)| Absent { target, reason }).collect();
        let totals = self.totals();
        Ok(serde_json::to_writer_pretty(to, &Document { cases, totals, not_run: self.not_run, unavailable })?)
    }

    /// Writes the report in JUnit's format, with a test suite for each target. Cases that do not apply are skipped tests
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
        status.set_message(format!("{reason}\ntests: {}", case.about));
    }
    let mut test = TestCase::new(case.case.as_str(), status);
    test.set_time(case.took);
    test
}
