//! The report as text.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{ContentArrangement, Table, presets};

use crate::report::{Outcome, Report};

/// A table with a row for each case and a column for each target.
pub(crate) fn table(report: &Report) -> String {
    let mut targets: Vec<&str> = Vec::new();
    let mut rows: Vec<(&str, Vec<&'static str>)> = Vec::new();
    for case in &report.cases {
        let column = targets.iter().position(|target| *target == case.target).unwrap_or_else(|| {
            targets.push(&case.target);
            targets.len() - 1
        });
        let row = rows.iter().position(|(name, _)| *name == case.case).unwrap_or_else(|| {
            rows.push((&case.case, Vec::new()));
            rows.len() - 1
        });
        let cells = &mut rows[row].1;
        cells.resize(cells.len().max(column + 1), "");
        cells[column] = sign(&case.outcome);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(std::iter::once("case").chain(targets));
    for (name, cells) in rows {
        table.add_row(std::iter::once(name).chain(cells));
    }
    table.trim_fmt()
}

/// The failures and skips, what did not run, and the totals.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", reasons(self), left_out(self))?;
        if self.not_run > 0 {
            writeln!(f, "NOTE {} cases were not run after a failure", self.not_run)?;
        }
        for (target, reason) in &self.unavailable {
            writeln!(f, "NOT RUN {target}: {reason}")?;
        }
        for (count, case) in self.first_failures() {
            let (target, case) = (&case.target, &case.case);
            writeln!(
                f,
                "START WITH {target} {case}: of the {count} cases that fail, it depends on the fewest others"
            )?;
        }
        let totals = self.totals();
        write!(f, "{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped)
    }
}

/// The reason of each failure and skip, a paragraph for each.
fn reasons(report: &Report) -> String {
    let bad = report.cases.iter().filter_map(|case| match &case.outcome {
        Outcome::Failed(reason) => {
            Some(format!("FAIL {} {}\n     tests: {}\n     {reason}\n", case.target, case.case, case.about))
        }
        Outcome::Skipped(reason) => Some(format!("skip {} {}\n     {reason}\n", case.target, case.case)),
        Outcome::Passed | Outcome::NotApplicable(_) => None,
    });
    bad.collect()
}

/// The number of cases that do not apply to a target, with the reason.
fn left_out(report: &Report) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for case in &report.cases {
        if let Outcome::NotApplicable(reason) = &case.outcome {
            *counts.entry((reason, &case.target)).or_default() += 1;
        }
    }
    let mut targets: BTreeMap<(&str, usize), Vec<&str>> = BTreeMap::new();
    for ((reason, target), count) in counts {
        targets.entry((reason, count)).or_default().push(target);
    }
    let lines = targets.into_iter().map(|((reason, count), targets)| {
        let cases = if count == 1 { "case does" } else { "cases do" };
        format!("NOTE {count} {cases} not apply to {} because {reason}\n", targets.join(", "))
    });
    lines.collect()
}

fn sign(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "pass",
        Outcome::Failed(_) => "FAIL",
        Outcome::Skipped(_) => "skip",
        Outcome::NotApplicable(_) => "–",
    }
}
