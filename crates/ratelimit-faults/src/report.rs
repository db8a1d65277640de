//! The results: one row for each phase, a table with one row for each fault, and JSON.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde_json::{Value, json};

use crate::history::Checked;
use crate::plan::Phase;
use crate::target::Target;

/// How long a store may take to serve everybody again after a fault, in nanoseconds.
const RECOVERY: u64 = 10_000_000_000;

/// How many tasks more than after the first phase a worker may have: those of connections that are opened on demand.
const TASKS: i64 = 4;

/// How much the memory of a worker may have grown since the first phase, in KiB.
const MEMORY: i64 = 16 * 1024;

/// What happened in a phase.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) target: Target,
    pub(crate) phase: Phase,
    /// How long the fault really lasted, in nanoseconds.
    pub(crate) lasted: u64,
    /// How many losses were taken into account.
    pub(crate) losses: usize,
    pub(crate) checked: Checked,
    /// How many keys the store could not read afterwards.
    pub(crate) unread: usize,
    /// How many more tasks than after the first phase a worker has, at most.
    pub(crate) tasks: i64,
    /// How many KiB more than after the first phase a worker uses, at most.
    pub(crate) kibibytes: i64,
    /// How many connections a server has beyond those that the workers may have.
    pub(crate) connections: u64,
}

impl Row {
    /// The violations of the phase, as text.
    pub(crate) fn violations(&self) -> Vec<String> {
        let checked = &self.checked;
        let late = checked.calls - checked.in_time;
        let failed = self.failed();
        let wrong = [
            (checked.calls == 0, "there were no calls".to_owned()),
            (
                checked.beyond > 0,
                format!(
                    "{} units were admitted beyond the guarantee ({})",
                    checked.beyond,
                    exceeded(checked)
                ),
            ),
            (checked.forgotten > 0, format!("{} admitted units are not counted", checked.forgotten)),
            (checked.invented > 0, format!("{} units are counted that nobody charged", checked.invented)),
            (
                checked.refused_early > 0,
                format!("{} calls were refused although they fitted", checked.refused_early),
            ),
            (
                failed > 0,
                format!("{failed} calls failed although the servers were well, or a fallback could decide"),
            ),
            (late > 0, format!("{late} calls were late, one took {}", seconds(checked.slowest))),
            (
                checked.recovery.is_none_or(|recovery| recovery > RECOVERY),
                match checked.recovery {
                    Some(recovery) => format!("calls failed for {} after the fault", seconds(recovery)),
                    None => "a worker was not served after the fault".to_owned(),
                },
            ),
            (self.unread > 0, format!("{} keys cannot be read afterwards", self.unread)),
            (self.connections > 0, format!("{} connections are left over", self.connections)),
            (self.tasks > TASKS, format!("a worker has {} tasks more than at first", self.tasks)),
            (self.kibibytes > MEMORY, format!("a worker has grown by {} KiB", self.kibibytes)),
        ];
        wrong.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, what)| what).collect()
    }

    /// How many calls failed that may not fail: if nothing happens to the servers, or if a fallback decides without them.
    fn failed(&self) -> u64 {
        let fallback = self.target == Target::RedisFallback;
        if self.phase.fault.may_fail() && !fallback {
            return 0;
        }
        let is_excused = |kind: &str| match kind.trim_end_matches('?') {
            // The machine may be busy with other things.
            "timeout" => !fallback,
            "contended" => !self.target.is_exact(),
            _ => false,
        };
        self.checked.errors.iter().filter(|(kind, _)| !is_excused(kind)).map(|(_, count)| count).sum()
    }

    fn json(&self) -> Value {
        let checked = &self.checked;
        json!({
            "target": self.target,
            "phase": self.phase,
            "lasted_ms": self.lasted / 1_000_000,
            "losses": self.losses,
            "calls": checked.calls,
            "in_time": checked.in_time,
            "dropped": checked.dropped,
            "without_store": checked.degraded,
            "errors": checked.errors,
            "admitted": checked.admitted,
            "allowed": checked.allowed,
            "beyond": checked.beyond,
            "refused_early": checked.refused_early,
            "forgotten": checked.forgotten,
            "invented": checked.invented,
            "slowest_ms": checked.slowest / 1_000_000,
            "recovery_ms": checked.recovery.map(|recovery| recovery / 1_000_000),
            "more_tasks": self.tasks,
            "more_kib": self.kibibytes,
            "connections_left": self.connections,
            "violations": self.violations(),
        })
    }
}

/// All rows as JSON, and everything that failed, also targets that did not run.
pub(crate) fn json(seed: u64, seconds: u64, rows: &[Row], failures: &[String]) -> Value {
    let phases: Vec<_> = rows.iter().map(Row::json).collect();
    json!({ "seed": seed, "seconds": seconds, "failures": failures, "phases": phases })
}

/// One line for each target and fault, with the sum of its phases and the longest recovery.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = groups.iter_mut().find(|group| {
            group
                .first()
                .is_some_and(|first| first.target == row.target && first.phase.fault == row.phase.fault)
        });
        match same {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header([
        "target", "fault", "times", "calls", "in time", "dropped", "errors", "admitted", "at most", "beyond",
        "recovery",
    ]);
    for group in groups {
        let sum = |part: fn(&Checked) -> u64| group.iter().map(|row| part(&row.checked)).sum::<u64>();
        let mut errors = BTreeMap::<&str, u64>::new();
        for (kind, count) in group.iter().flat_map(|row| &row.checked.errors) {
            *errors.entry(kind).or_default() += count;
        }
        let degraded = sum(|checked| checked.degraded);
        if degraded > 0 {
            errors.insert("without the store", degraded);
        }
        let errors: Vec<String> = errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let recovery =
            group.iter().map(|row| row.checked.recovery).try_fold(0, |most, one| Some(one?.max(most)));
        let Some(first) = group.first() else { continue };
        table.add_row([
            first.target.name(),
            first.phase.fault.to_string(),
            group.len().to_string(),
            sum(|checked| checked.calls).to_string(),
            sum(|checked| checked.in_time).to_string(),
            sum(|checked| checked.dropped).to_string(),
            if errors.is_empty() { "none".to_owned() } else { errors.join(", ") },
            sum(|checked| checked.admitted).to_string(),
            sum(|checked| checked.allowed).to_string(),
            sum(|checked| checked.beyond).to_string(),
            recovery.map_or("never".to_owned(), seconds),
        ]);
    }
    for column in [2, 3, 4, 5, 7, 8, 9, 10] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// The limits that were exceeded.
fn exceeded(checked: &Checked) -> String {
    let limits = checked.exceeded.iter().map(|(limit, units)| format!("{limit}: {units}"));
    limits.collect::<Vec<_>>().join(", ")
}

/// Nanoseconds as text in seconds.
pub(crate) fn seconds(nanos: u64) -> String {
    let millis = nanos / 1_000_000;
    format!("{}.{:02} s", millis / 1_000, millis % 1_000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    fn row(target: Target, fault: Fault) -> Row {
        let phase =
            Phase { number: 1, fault, before: 0, lasts: 0, quota: 40, pause: 3, dropped: 0, choice: 0 };
        let checked = Checked { calls: 9, in_time: 9, recovery: Some(RECOVERY), ..Checked::default() };
        let (unread, connections) = (0, 0);
        let (tasks, kibibytes) = (TASKS, MEMORY);
        Row { target, phase, lasted: 0, losses: 0, checked, unread, tasks, kibibytes, connections }
    }

    #[test]
    fn a_phase_at_its_bounds_has_no_violation_and_beyond_each_it_has_one() {
        assert_eq!(row(Target::Redis, Fault::Killed).violations(), Vec::<String>::new());
        let beyond: [fn(&mut Row); 12] = [
            |row| (row.checked.calls, row.checked.in_time) = (0, 0),
            |row| row.checked.beyond = 1,
            |row| row.checked.forgotten = 1,
            |row| row.checked.invented = 1,
            |row| row.checked.refused_early = 1,
            |row| row.checked.in_time -= 1,
            |row| row.checked.recovery = Some(RECOVERY + 1),
            |row| row.checked.recovery = None,
            |row| row.unread = 1,
            |row| row.connections = 1,
            |row| row.tasks += 1,
            |row| row.kibibytes += 1,
        ];
        for (number, change) in beyond.into_iter().enumerate() {
            let mut row = row(Target::Redis, Fault::Killed);
            change(&mut row);
            assert_eq!(row.violations().len(), 1, "change {number}: {:?}", row.violations());
        }
    }

    #[test]
    fn calls_fail_only_if_something_happens_to_a_server_that_decides() {
        let violations = |target, fault, kind: &str| {
            let mut row = row(target, fault);
            row.checked.errors.insert(kind.to_owned(), 5);
            row.violations().len()
        };
        for fault in [Fault::Nothing, Fault::Dropped, Fault::Clocks, Fault::ScriptsFlushed, Fault::SlotsMoved]
        {
            assert_eq!(violations(Target::Redis, fault, "server"), 1, "{fault}");
            assert_eq!(violations(Target::Redis, fault, "timeout?"), 0, "{fault}");
        }
        assert_eq!(violations(Target::Redis, Fault::Killed, "unreachable?"), 0);
        assert_eq!(violations(Target::RedisFallback, Fault::Killed, "unreachable?"), 1);
        assert_eq!(violations(Target::Memcached, Fault::Nothing, "contended"), 0);
        assert_eq!(violations(Target::Redis, Fault::Nothing, "contended"), 1);
    }

    #[test]
    fn what_did_not_run_is_in_the_json() {
        let json = json(1, 2, &[], &["redis: it does not start".to_owned()]);
        assert_eq!(json["failures"][0], "redis: it does not start");
    }
}
