//! `compare`: all algorithms on one log or model, compared with an exact sliding log.

use ratelimit_core::Limit;
use serde::Serialize;

use super::log::{self, Log, Replay};
use super::output::{print, print_json};
use crate::args::CompareArgs;
use crate::compare::{Compared, Comparison, can_be_compared, compare};
use crate::engine::{Plan, Replayed};
use crate::input::LinesRead;
use crate::results::{Results, decisions};
use crate::table::{count, seconds, table};

/// The object that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    from: &'a str,
    lines: &'a LinesRead,
    #[serde(flatten)]
    replayed: &'a Replayed,
    by: &'a str,
    limit: String,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

pub(crate) fn run(args: &CompareArgs, allocated: fn() -> usize) -> anyhow::Result<()> {
    args.limit.iter().try_for_each(can_be_compared)?;
    let plan = Plan {
        by: vec![args.by.clone()],
        cost_field: args.log.cost_field.clone(),
        skip_missing: args.log.skip_missing,
        trusted_proxies: args.log.trusted_proxies.clone(),
        forwarded_field: args.log.forwarded_field.clone(),
        keep_seconds: args.log.keep_seconds,
        keep_trace: true,
        ..Plan::default()
    };
    let Replay { log, replayed, traces, sorted_by } = log::replay(&args.log, plan, 0)?;
    let results = Results {
        from: log.from,
        lines: log.lines,
        left_out: log.left_out,
        sorted_by,
        replayed,
        suggestions: Vec::new(),
        not_suggested: Vec::new(),
        periods: args.limit.iter().map(Limit::period).collect(),
    };
    for limit in &args.limit {
        for trace in &traces {
            let comparison = compare(trace, limit, Some(allocated))?;
            if args.json {
                print_json(&Report {
                    from: &results.from,
                    lines: &results.lines,
                    replayed: &results.replayed,
                    by: trace.by(),
                    limit: limit.to_string(),
                    comparison: &comparison,
                })?;
                continue;
            }
            let (requests, keys) = (count(comparison.requests, "request"), count(comparison.keys, "key"));
            let notes: String = results.notes().iter().map(|note| format!("{note}\n")).collect();
            let (by, tables) = (trace.by(), tables(&comparison, limit));
            print(&format!("{requests} of {keys} ({by}) in {}\n{notes}\n{tables}\n", results.from))?;
        }
    }
    Log::check(&results.lines, results.left_out, &results.from)
}

/// A table of the decisions of each algorithm, and one of what they cost.
pub(super) fn tables(comparison: &Comparison, limit: &Limit) -> String {
    let decisions = decisions(comparison);
    let header = [
        "LIMIT",
        "MEDIAN WAIT",
        "LONGEST WAIT",
        "TIME",
        "BYTES A KEY",
        "TRIPS: MEMORY/REDIS/POSTGRES/MEMCACHED",
    ];
    let costs = table(1, &header, comparison.algorithms.iter().map(costs));
    format!(
        "Against {} in any span of {}:\n{decisions}\n\n{costs}",
        limit.quota(),
        seconds(Some(limit.period().as_secs_f64()))
    )
}

fn costs(one: &Compared) -> Vec<String> {
    let trips = one.trips;
    vec![
        one.limit.clone(),
        seconds(one.median_wait),
        seconds(one.longest_wait),
        format!("{:.0} ns", one.nanos),
        one.bytes_per_key.map_or("-".to_owned(), |bytes| format!("{bytes:.0}")),
        format!("{}/{}/{}/{}", trips.memory, trips.redis, trips.postgres, trips.memcached),
    ]
}
