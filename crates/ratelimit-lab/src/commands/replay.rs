//! `replay`: what limits would have done to the requests in a log.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ratelimit_core::{Limit, Limits};

use super::log::{self, Log, Replay};
use super::output::{check_writable, print, print_json};
use crate::args::{ReplayArgs, TrialArgs};
use crate::by::By;
use crate::engine::{Plan, Trace, share};
use crate::results::{Results, hits, keys, keys_hit, policies, summary, who};
use crate::suggest::{Share, Suggestion, can_be_searched, suggest};
use crate::table::{count, date, percent};

/// Nothing is proposed if more than one in this many requests was decided at another time than its own.
const MOVED: u64 = 1_000;

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    args.csv.as_deref().map_or(Ok(()), check_writable)?;
    let (results, _) = replay(&args.trial, false)?;
    if let Some(path) = &args.csv {
        write_csv(path, &results).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    if args.json { print_json(&results) } else { print(&text(&results)?) }?;
    Log::check(&results.lines, results.left_out, &results.from)
}

/// Replays the requests. The traces are empty unless `keep_trace` or `--suggest` needs them.
pub(super) fn replay(args: &TrialArgs, keep_trace: bool) -> anyhow::Result<(Results, Vec<Trace>)> {
    let only_policies = args.limit.is_empty() && args.suggest.is_none();
    anyhow::ensure!(
        !only_policies || args.policies.is_some(),
        "nothing to replay: give --limit, --policies or --suggest"
    );
    anyhow::ensure!(
        !only_policies || args.log.cost_field.is_none(),
        "--cost-field is for --limit and --suggest: the policies of a file say themselves what a request costs"
    );
    let only_suggested = args.limit.is_empty() && args.policies.is_none();
    let fields = args.key_field.iter().map(|name| format!("field:{name}").parse::<By>());
    let mut by = args.by.clone();
    by.extend(fields.collect::<Result<Vec<_>, _>>().map_err(anyhow::Error::msg)?);
    anyhow::ensure!(
        !only_policies || !args.log.skip_missing,
        "--skip-missing is for --limit and --suggest: the policies of a file say themselves what to do without a key"
    );
    anyhow::ensure!(
        !only_policies || by.len() <= 1,
        "more than one --by or --key-field is for --limit and --suggest: the policies of a file say themselves \
         what they count by"
    );
    let searched = if args.suggest.is_some() { searched(&args.limit)? } else { Vec::new() };
    let plan = Plan {
        limits: args.limit.clone(),
        by,
        policies: args.policies.clone(),
        enforce_shadow: args.enforce_shadow,
        headers: args.header.clone(),
        provided_keys: args.provided_key.clone(),
        plan_field: args.plan_field.clone(),
        settle_field: args.settle_field.clone(),
        duration_unit: args.log.duration_unit,
        time_is: args.log.time_is,
        cost_field: args.log.cost_field.clone(),
        skip_missing: args.log.skip_missing,
        out_of_order: Duration::ZERO, // set from the arguments
        trusted_proxies: args.log.trusted_proxies.clone(),
        forwarded_field: args.log.forwarded_field.clone(),
        keep_seconds: args.log.keep_seconds,
        who: args.top > 0 && !only_suggested,
        keep_trace: keep_trace || args.suggest.is_some(),
    };
    let Replay { log, replayed, traces, sorted_by } = log::replay(&args.log, plan, args.top)?;
    let (suggestions, not_suggested) = match args.suggest {
        // Requests that were moved to another time are bursts that the log does not have.
        Some(_) if replayed.too_late > (log.lines.requests - log.left_out) / MOVED => {
            (Vec::new(), vec!["too many requests were decided at another time than their own".to_owned()])
        }
        Some(share) => suggestions(&searched, &traces, share, args.top),
        None => Default::default(),
    };
    let periods = searched.iter().map(Limit::period).collect();
    let Log { lines, from, left_out } = log;
    let results = Results { from, lines, left_out, sorted_by, replayed, suggestions, not_suggested, periods };
    Ok((results, traces))
}

/// The limits for which `--suggest` searches a quota: those of `--limit` without bans, or one each for a second, a minute
/// and an hour.
///
/// # Errors
/// If there is no search for one of them.
fn searched(limits: &[Limits]) -> anyhow::Result<Vec<Limit>> {
    let mut each: Vec<Limit> = limits.iter().flat_map(|limits| limits.iter().cloned()).collect();
    // Bans have no quota to search for.
    each.retain(|limit| !limit.is_ban());
    if each.is_empty() {
        each = ["1/s", "1/min", "1/h"].map(str::parse).into_iter().collect::<Result<_, _>>()?;
    }
    each.iter().try_for_each(can_be_searched)?;
    Ok(each)
}

/// A suggestion for each limit and each trace, and why there is none for the others.
fn suggestions(
    limits: &[Limit],
    traces: &[Trace],
    share: Share,
    top: usize,
) -> (Vec<Suggestion>, Vec<String>) {
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for (trace, limit) in traces.iter().flat_map(|trace| limits.iter().map(move |limit| (trace, limit))) {
        match suggest(trace, limit, share, top) {
            Ok(suggestion) => found.push(suggestion),
            Err(error) => reasons.push(format!("{error:#}, by {}", trace.by())),
        }
    }
    (found, reasons)
}

fn write_csv(path: &Path, results: &Results) -> anyhow::Result<()> {
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
        "path",
        "agent",
    ])?;
    let replayed = results.replayed.columns.iter().map(|one| (&one.limits, &one.by, &one.top));
    let suggested = results.suggestions.iter().map(|one| (&one.limit, &one.by, &one.top));
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
                key.path.as_ref().map(|path| &path.value),
                key.agent.as_ref().map(|agent| &agent.value),
            ))?;
        }
    }
    Ok(out.flush()?)
}

fn text(results: &Results) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let Results { from, lines, replayed, suggestions, .. } = results;
    let bad = match lines.bad {
        0 => String::new(),
        bad => format!(", {} ({})", count(bad, "bad line"), percent(share(bad, lines.lines))),
    };
    writeln!(text, "{} in {} of {from}{bad}", count(lines.requests, "request"), count(lines.lines, "line"))?;
    if let (Some(first), Some(last)) = (replayed.first, replayed.last) {
        writeln!(text, "from {} to {}", date(first), date(last))?;
    }
    results.notes().iter().try_for_each(|note| writeln!(text, "{note}"))?;
    if !replayed.columns.is_empty() {
        writeln!(text, "\n{}", summary(&replayed.columns))?;
    }
    for column in &replayed.columns {
        results.remarks(column).iter().try_for_each(|remark| writeln!(text, "{remark}"))?;
        if !column.policies.is_empty() {
            writeln!(text, "\n{}", policies(column))?;
        }
        if !column.top.is_empty() {
            writeln!(text, "\nRefused most: {} by {}", column.limits, column.by)?;
            writeln!(text, "{}", keys(&column.top, column.peak_seconds))?;
            who(&column.top).map_or(Ok(()), |who| writeln!(text, "\n{who}"))?;
        }
    }
    for suggestion in suggestions {
        writeln!(text, "\nAt most {}: {} by {}", suggestion.share, suggestion.limit, suggestion.by)?;
        hits(suggestion).iter().try_for_each(|line| writeln!(text, "  {line}"))?;
        if !suggestion.top.is_empty() {
            writeln!(text, "{}", keys_hit(suggestion))?;
        }
    }
    Ok(text)
}
