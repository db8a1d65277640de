//! The run as a table, and the reasons below it.

use comfy_table::{ContentArrangement, Table, presets};

use crate::report::{Outcome, Report};

/// A row for each case, a column for each target.
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

/// Why cases failed or were skipped, a paragraph for each.
pub(crate) fn reasons(report: &Report) -> String {
    let bad = report.cases.iter().filter_map(|case| match &case.outcome {
        Outcome::Failed(reason) => Some(format!("FAIL {} {}\n     {reason}\n", case.target, case.case)),
        Outcome::Skipped(reason) => Some(format!("skip {} {}\n     {reason}\n", case.target, case.case)),
        Outcome::Passed | Outcome::NotApplicable(_) => None,
    });
    bad.collect()
}

fn sign(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "pass",
        Outcome::Failed(_) => "FAIL",
        Outcome::Skipped(_) => "skip",
        Outcome::NotApplicable(_) => "–",
    }
}
