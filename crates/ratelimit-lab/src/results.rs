//! The results of a replay, and the tables and sentences that show them to people.

use std::collections::BTreeMap;
use std::time::Duration;

use ratelimit_core::Limit;
use serde::Serialize;

use crate::compare::Comparison;
use crate::engine::{KeyOutcome, MOST_WAITING, Mostly, Outcome, Replayed, share};
use crate::format::Format;
use crate::input::LinesRead;
use crate::suggest::Suggestion;
use crate::table::{Table, count, number, percent, seconds, table};

/// The results of a replay.
#[derive(Serialize)]
pub(crate) struct Results {
    /// The names of the files or the options that generate the traffic, as text for people.
    pub(crate) from: String,
    pub(crate) lines: LinesRead,
    /// Requests that were read but, as the arguments say, not replayed.
    pub(crate) left_out: u64,
    /// The bound with which the log was read again, since its requests were more out of order than usual.
    #[serde(skip)]
    pub(crate) sorted_by: Option<Duration>,
    #[serde(flatten)]
    pub(crate) replayed: Replayed,
    pub(crate) suggestions: Vec<Suggestion>,
    /// Why there are no other suggestions.
    pub(crate) not_suggested: Vec<String>,
    /// The periods of the limits that are proposed or compared.
    #[serde(skip)]
    pub(crate) periods: Vec<Duration>,
}

/// How the algorithms compare with the quota and the period of a limit.
pub(crate) struct Algorithms {
    pub(crate) limit: Limit,
    pub(crate) by: String,
    pub(crate) comparison: Comparison,
}

/// The period, in seconds, below which times in whole seconds are too coarse for a limit.
const SHORT: f64 = 60.0;

impl Results {
    /// Warnings about the log: what was left out, is incomplete, or makes the results inexact.
    pub(crate) fn notes(&self) -> Vec<String> {
        let Self { lines, replayed, .. } = self;
        let mut notes = Vec::new();
        if lines.bad > 0 {
            let each = lines.first_bad.iter();
            let each = each.map(|bad| format!("\n  {}, line {}: {}", bad.file, bad.line, bad.reason));
            let first: String = each.collect();
            let bad = count(lines.bad, "bad line");
            let part = percent(share(lines.bad, lines.lines));
            notes.push(format!("Left out: {bad} ({part}), of which the first:{first}"));
        }
        if self.left_out > 0 {
            let left_out = count(self.left_out, "request");
            notes.push(format!("Left out by --from, --to and --without-path: {left_out}"));
        }
        notes.extend(lines.incomplete.iter().map(|incomplete| format!("Incomplete: {incomplete}")));
        let crowded_out = replayed.crowded_out;
        if replayed.too_late > crowded_out {
            notes.push(format!(
                "Out of order by more than --out-of-order: {} ({}), decided at the latest time until then; set \
                 --out-of-order {}s, or sort the lines of all files by time",
                count(replayed.too_late - crowded_out, "request"),
                percent(share(replayed.too_late - crowded_out, lines.requests)),
                replayed.late_by.div_ceil(1_000_000_000)
            ));
        }
        if let Some(bound) = self.sorted_by {
            notes.push(format!(
                "Out of order by up to {}: the log was read twice, and its requests are decided in the order of their times",
                seconds(Some(bound.as_secs_f64()))
            ));
        }
        if crowded_out > 0 {
            notes.push(format!(
                "Out of order within --out-of-order: {}, decided at the latest time until then, because {} others waited; sort \
                 the lines of all files by time",
                count(crowded_out, "request"),
                number(MOST_WAITING as u64)
            ));
        }
        if replayed.without_cost > 0 {
            notes.push(format!(
                "Without a whole number in --cost-field: {}, at a cost of one each",
                count(replayed.without_cost, "request")
            ));
        }
        if replayed.without_plan > 0 {
            notes.push(format!(
                "With a plan in --plan-field that the policies lack: {}, decided without a plan",
                count(replayed.without_plan, "request")
            ));
        }
        let unused = replayed.fields_without_values.iter();
        notes.extend(unused.map(|option| format!("No request has a value in the field of {option}")));
        if replayed.without_duration > 0 && replayed.skipped.is_empty() {
            let without = count(replayed.without_duration, "request");
            notes.push(format!("Without a duration: {without}, taken to end when they begin"));
        }
        notes.extend(replayed.skipped.iter().map(|skipped| format!("Not replayed: {skipped}")));
        notes.extend(self.not_suggested.iter().map(|reason| format!("Not proposed: {reason}")));
        let assumed = [
            ("a status", replayed.without_status, "200"),
            ("a method", replayed.without_method, "GET"),
            ("a path", replayed.without_path, "/"),
            ("a size", replayed.without_size, "0 bytes"),
        ];
        let assumed = assumed.into_iter().filter(|(_, n, _)| *n > 0);
        notes
            .extend(assumed.map(|(what, n, usual)| {
                format!("Without {what}: {}, taken as {usual}", count(n, "request"))
            }));
        // Of a column, it is among its remarks.
        let has_column = |by: &String| replayed.columns.iter().any(|column| column.by == *by);
        let unidentified = replayed.unidentified.iter().filter(|(by, n)| **n > 0 && !has_column(by));
        notes.extend(unidentified.map(|(by, n)| format!("By {by}: {}", self.without_that(*n, false))));
        let columns = replayed.columns.iter().map(|column| column.shortest_seconds);
        let mut periods = columns.chain(self.periods.iter().map(Duration::as_secs_f64));
        let is_short = periods.any(|period| period > 0.0 && period < SHORT);
        match (replayed.whole_seconds, replayed.spread) {
            (true, true) => notes.push(
                "All times are whole seconds: the requests of each second are spread evenly over it, unless you set \
                 --keep-seconds"
                    .to_owned(),
            ),
            (true, false) if is_short => notes.push(
                "All times are whole seconds: limits of a few seconds would have decided the real requests differently"
                    .to_owned(),
            ),
            _ => {}
        }
        notes
    }

    /// What becomes of requests that do not have what is counted by.
    fn without_that(&self, requests: u64, is_policies: bool) -> String {
        // Lines of the combined format have no other field.
        let has_names = self.lines.formats.iter().any(|format| *format != Format::Combined);
        let name =
            if has_names { "; if another field has it, name that with --ip-field or --by" } else { "" };
        let what = match (is_policies, self.replayed.skip_missing) {
            (true, _) => format!("shown together as one key{name}"),
            (false, true) => "left out".to_owned(),
            (false, false) => {
                format!("counted together as one key{name}, or leave them out with --skip-missing")
            }
        };
        format!("{} without that, {what}", count(requests, "request"))
    }

    /// Sentences about a column that are not in the summary.
    pub(crate) fn remarks(&self, column: &Outcome) -> Vec<String> {
        let Outcome { limits, is_policies, by, .. } = column;
        let not_replayed = column.not_replayed.iter();
        let mut remarks: Vec<String> =
            not_replayed.map(|what| format!("{limits}: not replayed are {what}")).collect();
        if column.unidentified > 0 {
            let what = self.without_that(column.unidentified, *is_policies);
            remarks.push(format!("{limits} by {by}: {what}"));
        }
        if column.delayed > 0 {
            remarks.push(format!(
                "{limits} by {by}: {} delayed, at most by {}",
                count(column.delayed, "request"),
                seconds(Some(column.longest_delay))
            ));
        }
        if column.never > 0 {
            remarks.push(format!(
                "{limits} by {by}: {} never admitted, however long the wait",
                count(column.never, "request")
            ));
        }
        for policy in &column.policies {
            let (name, of) = (&policy.name, count(policy.requests, "request"));
            if policy.without_key > 0 {
                remarks.push(format!(
                    "{limits}: {} of {of} of {name} without {}; if the log has that, name the field, as with --header",
                    number(policy.without_key),
                    policy.key
                ));
            }
            if policy.requests > 0 && policy.without_plan == Some(policy.requests) {
                remarks.push(format!(
                    "{limits}: none of {of} of {name} has a plan; if the log has it, name the field with --plan-field"
                ));
            }
        }
        remarks.extend(column.refused_by.iter().map(|(name, refused)| {
            // A name has no parentheses.
            match name.strip_prefix('(').and_then(|reason| reason.strip_suffix(')')) {
                Some(reason) => format!("{limits}: {} refused with {reason}", count(*refused, "request")),
                None => format!("{limits}: {name} refused {}", number(*refused)),
            }
        }));
        remarks
    }

    /// Replaces keys by numbers. A key has the same number in all columns and proposals that count by the same.
    pub(crate) fn hide_keys(&mut self) {
        let columns = self.replayed.columns.iter_mut().map(|one| (&one.by, &mut one.top));
        let suggestions = self.suggestions.iter_mut().map(|one| (&one.by, &mut one.top));
        let mut numbers = BTreeMap::new();
        for (by, top) in columns.chain(suggestions) {
            for key in top {
                let next = numbers.len() + 1;
                let name = (by.clone(), std::mem::take(&mut key.key));
                key.key = format!("key {}", numbers.entry(name).or_insert(next));
                // They, too, may tell who that is.
                (key.path, key.agent) = (None, None);
            }
        }
    }
}

/// A row for each column of the replay.
pub(crate) fn summary(columns: &[Outcome]) -> Table {
    let header = [
        "LIMITS",
        "BY",
        "REQUESTS",
        "ADMITTED",
        "REFUSED",
        "SHARE",
        "KEYS",
        "REFUSED KEYS",
        "MEDIAN WAIT",
        "LONGEST WAIT",
    ];
    let rows = columns.iter().map(|one| {
        vec![
            one.limits.clone(),
            one.by.clone(),
            number(one.requests),
            number(one.admitted),
            number(one.refused),
            percent(one.refused_share()),
            number(one.keys),
            number(one.keys_refused),
            seconds(one.median_wait),
            seconds(one.longest_wait),
        ]
    });
    table(2, &header, rows)
}

/// A row for each policy of a configuration file.
pub(crate) fn policies(column: &Outcome) -> Table {
    let header = ["POLICY", "KEY", "REQUESTS", "WITHOUT KEY", "WITHOUT PLAN", "REFUSED"];
    let rows = column.policies.iter().map(|one| {
        vec![
            one.name.clone(),
            one.key.clone(),
            number(one.requests),
            number(one.without_key),
            one.without_plan.map_or("-".to_owned(), number),
            number(column.refused_by.get(&one.name).copied().unwrap_or(0)),
        ]
    });
    table(2, &header, rows)
}

/// A row for each of the keys that were refused most. Peaks are those of all time if there is no period.
pub(crate) fn keys(top: &[KeyOutcome], peak_seconds: f64) -> Table {
    let period = (peak_seconds > 0.0).then(|| seconds(Some(peak_seconds)));
    let peak = format!("PEAK ({})", period.as_deref().unwrap_or("IN TOTAL"));
    let header = ["KEY", "REQUESTS", "REFUSED", "SHARE", &peak, "MEDIAN WAIT", "LONGEST WAIT"];
    let rows = top.iter().map(|key| {
        vec![
            key.key.clone(),
            number(key.requests),
            number(key.refused),
            percent(share(key.refused, key.requests)),
            number(key.peak),
            seconds(key.median_wait),
            seconds(key.longest_wait),
        ]
    });
    table(1, &header, rows)
}

/// What most of the refused requests of these keys have; `None` if that is not known of any.
pub(crate) fn who(top: &[KeyOutcome]) -> Option<Table> {
    let mostly = |one: &Option<Mostly>| {
        one.as_ref()
            .map_or("-".to_owned(), |one| format!("{} ({})", one.value, percent(share(one.refused, one.of))))
    };
    let row = |key: &KeyOutcome| vec![key.key.clone(), mostly(&key.path), mostly(&key.agent)];
    let is_known = top.iter().any(|key| key.path.is_some() || key.agent.is_some());
    is_known.then(|| table(3, &["KEY", "MOSTLY REFUSED ON", "MOSTLY AS"], top.iter().map(row)))
}

/// Sentences that say what a proposed limit refuses, and what it would refuse if its quota were one less.
pub(crate) fn hits(suggestion: &Suggestion) -> Vec<String> {
    let Suggestion { refused, requests, keys: all, .. } = suggestion;
    let mut lines = vec![format!(
        "refuses {} of {} ({}) and hits {} of {} ({})",
        number(refused.requests),
        count(*requests, "request"),
        percent(share(refused.requests, *requests)),
        number(refused.keys),
        count(*all, "key"),
        percent(share(refused.keys, *all)),
    )];
    lines.extend(suggestion.refused_by_one_less.map(|less| {
        format!("one less refuses {} and hits {}", count(less.requests, "request"), count(less.keys, "key"))
    }));
    lines
}

/// A row for each of the keys that a proposed limit refuses most.
pub(crate) fn keys_hit(suggestion: &Suggestion) -> Table {
    let period = suggestion.limit.parse::<Limit>().map_or(0.0, |limit| limit.period().as_secs_f64());
    keys(&suggestion.top, period)
}

/// A row for each algorithm: how its decisions differ from those of an exact log.
pub(crate) fn decisions(comparison: &Comparison) -> Table {
    let all = comparison.requests;
    let header = [
        "LIMIT",
        "REFUSED",
        "WRONGLY ADMITTED",
        "WRONGLY REFUSED",
        "OVERSHOOT",
        "KEYS ABOVE",
        "KEYS WRONGLY REFUSED",
        "DIFFERENCE",
        "FAIRNESS",
    ];
    let optional = |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or("-".to_owned(), show);
    let rows = comparison.algorithms.iter().map(|one| {
        vec![
            one.limit.clone(),
            percent(share(one.refused, all)),
            percent(share(one.wrongly_admitted, all)),
            percent(share(one.wrongly_refused, all)),
            format!("{:.2} x", one.overshoot),
            number(one.keys_above),
            number(one.keys_refused_wrongly),
            optional(one.mean_difference, &percent),
            optional(one.fairness, &|index| format!("{index:.4}")),
        ]
    });
    table(1, &header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Plan};
    use crate::record::Wanted;

    #[test]
    fn the_bound_is_not_blamed_for_requests_within_it() {
        let notes = |too_late, crowded_out| {
            let engine = Engine::new(&Plan::default(), &mut Wanted::time(None)).unwrap();
            let (replayed, _) = engine.finish(0).unwrap();
            let results = Results {
                from: String::new(),
                lines: LinesRead::default(),
                left_out: 0,
                sorted_by: None,
                replayed: Replayed { too_late, crowded_out, ..replayed },
                suggestions: Vec::new(),
                not_suggested: Vec::new(),
                periods: Vec::new(),
            };
            results.notes()
        };
        let late = "Out of order by more than --out-of-order: 2 requests (0 %), ";
        let crowded = "Out of order within --out-of-order: 3 requests, decided at the latest time until then, because \
                       1,048,576 others waited; ";
        for (too_late, crowded_out, expected) in
            [(0, 0, &[][..]), (2, 0, &[late]), (3, 3, &[crowded]), (5, 3, &[late, crowded])]
        {
            let notes = notes(too_late, crowded_out);
            let is_expected = notes.iter().zip(expected).all(|(note, begin)| note.starts_with(begin));
            assert!(notes.len() == expected.len() && is_expected, "{notes:?}");
        }
    }
}
