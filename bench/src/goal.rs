//! The performance goals, in one table.

use serde::Serialize;

use crate::contestants::{GOVERNOR, OURS, OURS_FIXED, OURS_GCRA};
use crate::table::Table;

/// A bound on one of our figures.
struct Goal {
    table: &'static str,
    column: &'static str,
    /// Ours.
    row: &'static str,
    bound: Bound,
}

enum Bound {
    /// At most this.
    Most(f64),
    /// At most this multiple of the figure of that row, in another table if one is named.
    MostOf(f64, &'static str, Option<&'static str>),
    /// At least this multiple of the figure of that row.
    LeastOf(f64, &'static str),
    /// At most this multiple of the figure of the same row in that column.
    MostOfColumn(f64, &'static str),
}

use Bound::{LeastOf, Most, MostOf, MostOfColumn};

const fn goal(table: &'static str, column: &'static str, row: &'static str, bound: Bound) -> Goal {
    Goal { table, column, row, bound }
}

/// Compared with governor with string keys.
const fn beside_governor(table: &'static str, row: &'static str, times: f64) -> Goal {
    goal(table, "ns", row, MostOf(times, GOVERNOR, None))
}

const GOALS: &[Goal] = &[
    beside_governor("hot", OURS, 0.75),
    beside_governor("hot", OURS_GCRA, 0.75),
    beside_governor("uniform", OURS, 0.6),
    beside_governor("uniform", OURS_GCRA, 0.6),
    beside_governor("zipf", OURS, 0.6),
    beside_governor("zipf", OURS_GCRA, 0.6),
    beside_governor("new", OURS, 0.4),
    beside_governor("new", OURS_GCRA, 0.4),
    beside_governor("hot-2", OURS, 0.6),
    beside_governor("hot-2", OURS_GCRA, 0.6),
    goal("refused-2", "ns", OURS, MostOf(1.3, OURS, Some("refused"))),
    goal("refused-2", "ns", OURS_GCRA, MostOf(1.3, OURS_GCRA, Some("refused"))),
    goal("allocations", "known key", OURS, Most(0.0)),
    goal("allocations", "known key", OURS_FIXED, Most(0.0)),
    goal("allocations", "known key", OURS_GCRA, Most(0.0)),
    goal("allocations", "known key", "ours, segmented", Most(0.0)),
    goal("allocations", "known key", "ours, strict", Most(0.0)),
    goal("allocations", "known key", "ours, leaky", Most(0.0)),
    goal("allocations", "known key", "ours, queue", Most(0.0)),
    goal("allocations", "refused", OURS, Most(0.0)),
    goal("memory", "1M keys", OURS, Most(48.0)),
    goal("memory", "5M keys", OURS, Most(48.0)),
    goal("pauses", "while they come", OURS, Most(1.0)),
    goal("pauses", "while they expire", OURS, Most(1.0)),
    // "Does not grow", with a margin for data that exceeds the caches.
    goal("log", "100k", "ours, log", MostOfColumn(1.5, "10")),
    goal("log-refused", "100k", "ours, log", MostOfColumn(1.5, "10")),
    // With ten units the key itself takes more memory than the units.
    goal("log-memory", "1k", "ours, log", Most(10.0)),
    goal("log-memory", "100k", "ours, log", Most(10.0)),
    goal("redis-log", "1k", "ours, log", Most(12.0)),
    goal("redis-log", "100k", "ours, log", Most(12.0)),
    goal("redis-p50", "1", OURS, MostOf(1.15, "bare EVALSHA", None)),
    goal("redis", "128", OURS, LeastOf(2.0, "bare window script")),
    goal("redis", "128", OURS, LeastOf(1.0, "bare EVALSHA")),
    goal("redis", "128", OURS, LeastOf(5.0, "limitador")),
    goal("memcached", "16", OURS, LeastOf(0.9, "one connection, pipelined by hand")),
    goal("memcached", "128", OURS, LeastOf(0.9, "one connection, pipelined by hand")),
    goal("postgres", "128", OURS, LeastOf(5.0, "one upsert per decision")),
    goal("postgres-p99", "128", OURS, MostOf(1.0, "one upsert per decision", None)),
    goal("postgres-p50", "1", OURS, MostOf(1.2, "one upsert per decision", None)),
];

/// The result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) text: String,
    pub(crate) reached: bool,
    pub(crate) figure: f64,
    pub(crate) bound: f64,
}

/// The results of the goals with measured figures.
pub(crate) fn verdicts(tables: &[Table]) -> Vec<Verdict> {
    GOALS.iter().filter_map(|goal| goal.verdict(tables)).collect()
}

impl Goal {
    fn verdict(&self, tables: &[Table]) -> Option<Verdict> {
        let table = tables.iter().find(|table| table.name == self.table)?;
        let figure = |table: &Table, row, column| table.sample(row, column).map(|sample| sample.median);
        let measured = figure(table, self.row, self.column)?;
        let (figure, bound, reached, than) = match self.bound {
            Most(bound) => (measured, bound, measured <= bound, table.unit.clone()),
            MostOf(bound, row, other) => {
                let other =
                    other.map_or(Some(table), |name| tables.iter().find(|table| table.name == name))?;
                let ratio = measured / figure(other, row, self.column)?;
                let of = if other.name == table.name { String::new() } else { format!(" in {}", other.name) };
                (ratio, bound, ratio <= bound, format!("times {row}{of}"))
            }
            LeastOf(bound, row) => {
                let ratio = measured / figure(table, row, self.column)?;
                (ratio, bound, ratio >= bound, format!("times {row}"))
            }
            MostOfColumn(bound, column) => {
                let ratio = measured / figure(table, self.row, column)?;
                (ratio, bound, ratio <= bound, format!("times that at {column}"))
            }
        };
        let which = if matches!(self.bound, LeastOf(..)) { "at least" } else { "at most" };
        let column = if self.column == "ns" { String::new() } else { format!(", {}", self.column) };
        let word = if reached { "reached" } else { "not reached" };
        let text = format!(
            "goal {}{column}, {}: {which} {bound} {than}: {word} ({figure:.2})",
            self.table, self.row
        );
        Some(Verdict { text, reached, figure, bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Row, Sample};

    fn table(ours: f64, governor: f64) -> Table {
        let row = |name: &str, figure: f64| Row {
            contestant: name.to_owned(),
            samples: vec![Sample::of(vec![figure])],
        };
        Table {
            name: "hot".to_owned(),
            title: String::new(),
            unit: String::new(),
            axis: None,
            baseline: None,
            repeats: 1,
            fewest: 1,
            columns: vec![Column { name: "ns".to_owned(), at: None }],
            rows: vec![row(OURS, ours), row(GOVERNOR, governor)],
        }
    }

    #[test]
    fn a_goal_is_reached_up_to_its_bound_and_not_beyond() {
        let verdict = |ours| verdicts(&[table(ours, 100.0)]).remove(0);
        assert!(verdict(75.0).reached);
        assert!(!verdict(75.1).reached);
        assert_eq!(verdict(50.0).text, "goal hot, ours: at most 0.75 times governor, String: reached (0.50)");
    }

    #[test]
    fn goals_without_a_measurement_have_no_verdict() {
        assert!(verdicts(&[]).is_empty());
    }

    #[test]
    fn every_goal_names_an_existing_table_column_and_row() {
        let families = crate::family::all(&crate::scale::FULL);
        for goal in GOALS {
            let family =
                families.iter().find(|family| family.plots.iter().any(|plot| plot.name == goal.table));
            let family = family.unwrap_or_else(|| panic!("no table {}", goal.table));
            let plot = family.plots.iter().find(|plot| plot.name == goal.table).expect("found above");
            let columns = plot.columns(&family.arguments);
            assert!(
                columns.iter().any(|(column, ..)| column.name == goal.column),
                "{} {}",
                goal.table,
                goal.column
            );
            assert!(family.contestants.contains(&goal.row), "{} {}", goal.table, goal.row);
        }
    }
}
