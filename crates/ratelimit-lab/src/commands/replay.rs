//! `replay`: what limits would have done to the requests in a log.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use ratelimit_core::{Limit, Limits};
use serde::Serialize;

use super::log::{self, Log};
use crate::args::ReplayArgs;
use crate::by::By;
use crate::engine::{Engine, KeyOutcome, Outcome, Plan, Replayed, Trace, share};
use crate::input::LinesRead;
use crate::record::Wanted;
use crate::suggest::{Share, Suggestion, suggest};
use crate::table::{count, date, number, percent, seconds, table};

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    from: &'a str,
    lines: &'a LinesRead,
    #[serde(flatten)]
    replayed: &'a Replayed,
    suggestions: &'a [Suggestion],
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        !args.limit.is_empty() || args.policies.is_some() || args.suggest.is_some(),
        "nothing to replay: give --limit, --policies or --suggest"
    );
    let fields = args.key_field.iter().map(|name| format!("field:{name}").parse::<By>());
    let fields: Vec<By> = fields.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    // `ip` is only the default.
    let is_default = !fields.is_empty() && matches!(&args.by[..], [by] if by.to_string() == "ip");
    let own = if is_default { Vec::new() } else { args.by.clone() };
    let plan = Plan {
        limits: args.limit.clone(),
        by: own.into_iter().chain(fields).collect(),
        policies: args.policies.clone(),
        enforce_shadow: args.enforce_shadow,
        headers: args.header.clone(),
        plan_field: args.plan_field.clone(),
        cost_field: args.log.cost_field.clone(),
        skip_missing: args.skip_missing,
        out_of_order: args.log.out_of_order,
        keep_trace: args.suggest.is_some(),
    };
    let mut wanted = Wanted::time(args.log.time_field.as_deref());
    let mut engine = Engine::new(&plan, &mut wanted)?;
    let log = log::each(&args.log, wanted, |record| engine.add(record))?;
    let (replayed, traces) = engine.finish(args.top)?;
    let suggestions = match args.suggest {
        Some(share) => suggestions(&args.limit, &traces, share, args.top)?,
        None => Vec::new(),
    };
    if let Some(path) = &args.csv {
        write_csv(path, &replayed, &suggestions)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        let report =
            Report { from: &log.from, lines: &log.lines, replayed: &replayed, suggestions: &suggestions };
        serde_json::to_writer(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text(&log, &replayed, &suggestions)?.as_bytes())?;
    }
    Ok(out.flush()?)
}

/// A suggestion for each limit and for each thing to count by.
fn suggestions(
    limits: &[Limits],
    traces: &[Trace],
    share: Share,
    top: usize,
) -> anyhow::Result<Vec<Suggestion>> {
    let mut each: Vec<Limit> = limits.iter().flat_map(|limits| limits.iter().cloned()).collect();
    // Bans have no quota to search for.
    each.retain(|limit| !limit.is_ban());
    if each.is_empty() {
        each = ["1/s", "1/min", "1/h"].map(str::parse).into_iter().collect::<Result<_, _>>()?;
    }
    traces.iter().flat_map(|trace| each.iter().map(move |limit| suggest(trace, limit, share, top))).collect()
}

fn write_csv(path: &Path, replayed: &Replayed, suggestions: &[Suggestion]) -> anyhow::Result<()> {
    let mut out = csv::Writer::from_path(path)?;
    out.write_record([
        "limits",
        "by",
        "key",
        "requests",
        "refused",
        "peak",
        "median_wait_seconds",
        "longest_wait_seconds",
    ])?;
    let replayed = replayed.columns.iter().map(|one| (&one.limits, &one.by, &one.top));
    let suggested = suggestions.iter().map(|one| (&one.limit, &one.by, &one.top));
    for (limits, by, top) in replayed.chain(suggested) {
        for key in top {
            out.serialize((
                limits,
                by,
                &key.key,
                key.requests,
                key.refused,
                key.peak,
                key.median_wait,
                key.longest_wait,
            ))?;
        }
    }
    Ok(out.flush()?)
}

fn text(log: &Log, replayed: &Replayed, suggestions: &[Suggestion]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let Log { lines, from } = log;
    writeln!(text, "{} in {} of {from}", count(lines.requests, "request"), count(lines.lines, "line"))?;
    if let (Some(first), Some(last)) = (replayed.first, replayed.last) {
        writeln!(text, "from {} to {}", date(first), date(last))?;
    }
    if lines.bad > 0 {
        writeln!(text, "Left out: {}, of which the first:", count(lines.bad, "bad line"))?;
        for bad in &lines.first_bad {
            writeln!(text, "  {}, line {}: {}", bad.file, bad.line, bad.reason)?;
        }
    }
    for incomplete in &lines.incomplete {
        writeln!(text, "Incomplete: {incomplete}")?;
    }
    if replayed.too_late > 0 {
        let too_late = number(replayed.too_late);
        writeln!(
            text,
            "{too_late} requests were out of order by more than --out-of-order: decided at the latest time"
        )?;
    }
    let is_short = |column: &Outcome| column.peak_seconds > 0.0 && column.peak_seconds < SHORT;
    if replayed.whole_seconds && replayed.columns.iter().any(is_short) {
        writeln!(
            text,
            "All times are whole seconds: limits of a few seconds would have decided the real requests differently"
        )?;
    }
    if !replayed.columns.is_empty() {
        writeln!(text, "\n{}", summary(&replayed.columns))?;
    }
    for column in &replayed.columns {
        refused_by(&mut text, column)?;
        if !column.top.is_empty() {
            writeln!(text, "\nRefused most: {} by {}", column.limits, column.by)?;
            writeln!(text, "{}", keys(&column.top, column.peak_seconds))?;
        }
    }
    for suggestion in suggestions {
        suggested(&mut text, suggestion)?;
    }
    Ok(text)
}

/// Periods in seconds that are short for times in whole seconds.
const SHORT: f64 = 60.0;

fn summary(columns: &[Outcome]) -> String {
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

fn refused_by(text: &mut String, column: &Outcome) -> std::fmt::Result {
    let Outcome { limits, by, .. } = column;
    if column.unidentified > 0 {
        writeln!(text, "{limits} by {by}: {} requests do not have that", number(column.unidentified))?;
    }
    if column.delayed > 0 {
        let longest = match column.longest_delay {
            0.0 => String::new(),
            longest => format!(", at most by {}", seconds(Some(longest))),
        };
        writeln!(text, "{limits} by {by}: {} requests are delayed{longest}", number(column.delayed))?;
    }
    if column.never > 0 {
        writeln!(
            text,
            "{limits} by {by}: {} requests are never admitted, however long they wait",
            number(column.never)
        )?;
    }
    for (name, count) in &column.refused_by {
        writeln!(text, "{limits}: {name} refused {}", number(*count))?;
    }
    Ok(())
}

fn keys(top: &[KeyOutcome], peak_seconds: f64) -> String {
    let peak = format!("PEAK ({})", seconds(Some(peak_seconds)));
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

fn suggested(text: &mut String, suggestion: &Suggestion) -> std::fmt::Result {
    let Suggestion { limit, by, share: most, refused, requests, keys: all, .. } = suggestion;
    writeln!(text, "\nAt most {most}: {limit} by {by}")?;
    writeln!(
        text,
        "  refuses {} of {} ({}) and hits {} of {} ({})",
        number(refused.requests),
        count(*requests, "request"),
        percent(share(refused.requests, *requests)),
        number(refused.keys),
        count(*all, "key"),
        percent(share(refused.keys, *all)),
    )?;
    if let Some(less) = suggestion.refused_by_one_less {
        writeln!(
            text,
            "  one less refuses {} and hits {}",
            count(less.requests, "request"),
            count(less.keys, "key")
        )?;
    }
    if !suggestion.top.is_empty() {
        let period = limit.parse::<Limit>().map_or(0.0, |limit| limit.period().as_secs_f64());
        writeln!(text, "{}", keys(&suggestion.top, period))?;
    }
    Ok(())
}
