//! `compare`: all algorithms on one log or model, against the exact sliding log.

use std::io::{self, Write as _};

use ratelimit_core::Limit;
use serde::Serialize;

use super::log;
use crate::args::CompareArgs;
use crate::compare::{Compared, Comparison, compare};
use crate::engine::{Engine, Plan};
use crate::record::Wanted;
use crate::results::decisions;
use crate::table::{count, seconds, table};

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    from: &'a str,
    by: &'a str,
    limit: String,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

pub(crate) fn run(args: &CompareArgs, allocated: fn() -> usize) -> anyhow::Result<()> {
    let plan = Plan {
        by: vec![args.by.clone()],
        cost_field: args.log.cost_field.clone(),
        out_of_order: args.log.out_of_order,
        keep_trace: true,
        ..Plan::default()
    };
    let mut wanted = Wanted::time(args.log.time_field.as_deref());
    let mut engine = Engine::new(&plan, &mut wanted)?;
    let log = log::each(&args.log, wanted, |record| engine.add(record))?;
    let (_, traces) = engine.finish(0)?;
    for limit in &args.limit {
        for trace in &traces {
            let comparison = compare(trace, limit, Some(allocated))?;
            let mut out = io::stdout().lock();
            if args.json {
                let report = Report {
                    from: &log.from,
                    by: trace.by(),
                    limit: limit.to_string(),
                    comparison: &comparison,
                };
                serde_json::to_writer(&mut out, &report).map_err(io::Error::from)?;
                writeln!(out)?;
            } else {
                let (requests, keys) = (count(comparison.requests, "request"), count(comparison.keys, "key"));
                writeln!(out, "{requests} of {keys} ({}) in {}\n", trace.by(), log.from)?;
                writeln!(out, "{}", tables(&comparison, limit))?;
            }
            out.flush()?;
        }
    }
    Ok(())
}

/// The decisions, and what they cost.
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
