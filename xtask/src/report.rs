//! Merges the reports of several crates: into a file, and into a table of cases and targets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::step::Totals;
use crate::workspace::{list, text};

/// The results of the suite.
#[derive(Debug, Default)]
pub(crate) struct Report {
    whole: Vec<Value>,
    /// By case and target.
    outcomes: BTreeMap<String, BTreeMap<String, Mark>>,
    /// The place and the reason for each case that failed or was skipped.
    reasons: Vec<(Mark, String)>,
    /// Targets that could not be run, and why.
    pub(crate) unavailable: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Passed,
    Failed,
    Skipped,
    NotApplicable,
}

impl Mark {
    fn read(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "passed" => Some(Self::Passed),
            "failed" => Some(Self::Failed),
            "skipped" => Some(Self::Skipped),
            "not applicable" => Some(Self::NotApplicable),
            _ => None,
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
            Self::NotApplicable => "-",
        }
    }
}

impl Report {
    /// Adds the report of a crate.
    pub(crate) fn add(&mut self, file: &Path) -> Result<()> {
        let content = std::fs::read(file).with_context(|| format!("the report {}", file.display()))?;
        let value: Value = serde_json::from_slice(&content).context("a report is not JSON")?;
        self.collect(&value);
        self.whole.push(value);
        Ok(())
    }

    fn collect(&mut self, value: &Value) {
        for line in list(&value["cases"]) {
            let [target, case] = ["target", "case"].map(|name| text(&line[name]));
            let Some(mark) = Mark::read(&line["outcome"]) else { continue };
            if matches!(mark, Mark::Failed | Mark::Skipped) {
                self.reasons.push((mark, format!("{target}/{case}: {}", text(&line["reason"]))));
            }
            self.outcomes.entry(case).or_default().insert(target, mark);
        }
        for absent in list(&value["unavailable"]) {
            self.unavailable.push((text(&absent["target"]), text(&absent["reason"])));
        }
    }

    /// Writes all of them: a single report as it is, several as a list.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let value = match self.whole.as_slice() {
            [one] => one.clone(),
            several => Value::Array(several.to_vec()),
        };
        let content = serde_json::to_string_pretty(&value)?;
        std::fs::write(file, content).with_context(|| format!("writing {}", file.display()))
    }

    /// Whether any case has run on the target, or it is known why none has.
    pub(crate) fn has(&self, target: &str) -> bool {
        self.outcomes.values().any(|marks| marks.contains_key(target))
            || self.unavailable.iter().any(|(name, _)| name == target)
    }

    /// A line for each case that failed, and unless skips are allowed, for each that was skipped.
    pub(crate) fn reasons(&self, allow_skips: bool) -> impl Iterator<Item = String> {
        let counts = move |mark: Mark| mark == Mark::Failed || !allow_skips;
        let asked = self.reasons.iter().filter(move |(mark, _)| counts(*mark));
        asked.map(|(mark, line)| format!("{} {line}", mark.shown()))
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for mark in self.outcomes.values().flat_map(BTreeMap::values) {
            match mark {
                Mark::Passed => totals.passed += 1,
                Mark::Failed => totals.failed += 1,
                Mark::Skipped => totals.skipped += 1,
                Mark::NotApplicable => {}
            }
        }
        totals
    }

    /// A line for each case, a column for each target.
    pub(crate) fn table(&self) -> String {
        let targets: BTreeSet<&str> =
            self.outcomes.values().flat_map(BTreeMap::keys).map(String::as_str).collect();
        let width = self.outcomes.keys().map(String::len).max().unwrap_or(0);
        let mut lines =
            vec![format!("{:width$}  {}", "", targets.iter().copied().collect::<Vec<_>>().join("  "))];
        for (case, marks) in &self.outcomes {
            let cell = |target: &&str| {
                let mark = marks.get(*target).map_or("", |mark| mark.shown());
                format!("{mark:0$}", target.len())
            };
            let cells: Vec<String> = targets.iter().map(cell).collect();
            lines.push(format!("{case:width$}  {}", cells.join("  ").trim_end()));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Report;
    use crate::step::Totals;

    #[test]
    fn outcomes_are_found_and_counted_by_case_and_target() {
        let mut report = Report::default();
        report.collect(&json!({ "cases": [
            { "target": "memory", "case": "edge", "outcome": "passed", "reason": null },
            { "target": "memory", "case": "time", "outcome": "failed", "reason": "why" },
            { "target": "redis", "case": "edge", "outcome": "not applicable", "reason": "no promise" },
        ] }));
        assert!(report.reasons(true).eq(["FAILED memory/time: why"]));
        assert_eq!(report.totals(), Totals { passed: 1, failed: 1, ..Totals::default() });
        assert_eq!(report.table(), "      memory  redis\nedge  ok      -\ntime  FAILED");
    }
}
