//! The reports of several crates as one: a file, and a table of cases and targets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::step::Totals;
use crate::workspace::text;

/// What the suite found out.
#[derive(Debug, Default)]
pub(crate) struct Report {
    whole: Vec<Value>,
    /// By case and target.
    outcomes: BTreeMap<String, BTreeMap<String, Mark>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Passed,
    Failed,
    Skipped,
    NotApplicable,
}

impl Mark {
    /// From a word, or from an object whose only key is the word.
    fn read(value: &Value) -> Option<Self> {
        let word = match value {
            Value::String(word) => word,
            Value::Object(map) => map.keys().next()?,
            _ => return None,
        };
        match word.to_lowercase().replace(['-', '_', ' '], "").as_str() {
            "passed" | "ok" => Some(Self::Passed),
            "failed" => Some(Self::Failed),
            "skipped" => Some(Self::Skipped),
            "notapplicable" => Some(Self::NotApplicable),
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
    /// Adds the report that a crate has written.
    pub(crate) fn add(&mut self, file: &Path) -> Result<()> {
        let content = std::fs::read(file).with_context(|| format!("the report {}", file.display()))?;
        let value: Value = serde_json::from_slice(&content).context("a report is not JSON")?;
        self.collect(&value, "");
        self.whole.push(value);
        Ok(())
    }

    /// Finds the outcomes in a report, however it groups them: objects with a `case` (or `name`) and an `outcome`, and a
    /// `target` in them or around them.
    fn collect(&mut self, value: &Value, target: &str) {
        match value {
            Value::Array(elements) => elements.iter().for_each(|element| self.collect(element, target)),
            Value::Object(map) => {
                let own = map.get("target").or_else(|| map.get("subject")).and_then(Value::as_str);
                let target = own.unwrap_or(target);
                if let Some(mark) = map.get("outcome").and_then(Mark::read) {
                    let case = text(map.get("case").or_else(|| map.get("name")).unwrap_or(&Value::Null));
                    self.outcomes.entry(case).or_default().insert(target.to_owned(), mark);
                } else {
                    map.values().for_each(|inner| self.collect(inner, target));
                }
            }
            _ => {}
        }
    }

    /// Writes all of them: one report as it is, several as a list.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let value = match self.whole.as_slice() {
            [one] => one.clone(),
            several => Value::Array(several.to_vec()),
        };
        let content = serde_json::to_string_pretty(&value)?;
        std::fs::write(file, content).with_context(|| format!("writing {}", file.display()))
    }

    /// Whether any case has run on the target.
    pub(crate) fn has(&self, target: &str) -> bool {
        self.outcomes.values().any(|marks| marks.contains_key(target))
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
        let cases = json!([{ "case": "edge", "outcome": "passed" }, { "case": "time", "outcome": { "failed": "why" } }]);
        report.collect(&json!({ "target": "memory", "cases": cases }), "");
        report.collect(&json!([{ "target": "redis", "case": "edge", "outcome": "not-applicable" }]), "");
        assert_eq!(report.totals(), Totals { passed: 1, failed: 1, skipped: 0 });
        assert_eq!(report.table(), "      memory  redis\nedge  ok      -\ntime  FAILED");
    }
}
