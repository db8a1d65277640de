//! `measure`: how exact the algorithms are on the requests of many sources.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressStyle};

use super::compare::tables;
use super::output::{print, print_json};
use crate::args::MeasureArgs;
use crate::compare::{Counted, Sources, measure};
use crate::engine::share;
use crate::table::{count, number, percent, table};

pub(crate) fn run(args: &MeasureArgs) -> anyhow::Result<()> {
    let sources = Sources::new(args.traffic, args.sources, args.requests, args.seed, &args.limit);
    let bar = if stderr().is_terminal() { ProgressBar::new(args.requests) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} requests, left {eta}")
    {
        bar.set_style(style);
    }
    let measured = measure(&sources, &args.limit, |more| bar.inc(more))?;
    bar.finish_and_clear();
    if args.json {
        return print_json(&measured);
    }
    let all = measured.counted.first();
    let header = [
        "LIMIT",
        "ABOVE",
        "WRONGLY ADMITTED",
        "WRONGLY LIMITED",
        "WRONG",
        "DIFFERENCE",
        "SOURCES ABOVE",
        "LET THROUGH",
        "BY AT MOST",
        "LIMITED BELOW",
    ];
    print(&format!(
        "{} of {} in a day, seed {}\n\nEvery request counts, also those above the limit:\n{}\n\n\
         Refused requests do not count, as in this project. {}\n",
        count(all.map_or(0, |one| one.requests), "request"),
        count(all.map_or(0, |one| one.sources), "source"),
        args.seed,
        table(1, &header, measured.counted.iter().map(row)),
        tables(&measured.limited, &args.limit)
    ))
}

fn row(one: &Counted) -> Vec<String> {
    let part = |count: u64| percent(share(count, one.requests));
    vec![
        one.limit.clone(),
        part(one.above),
        part(one.wrongly_admitted),
        part(one.wrongly_limited),
        part(one.wrongly_admitted + one.wrongly_limited),
        percent(one.mean_difference),
        number(one.sources_above),
        number(one.let_through),
        percent(one.let_through_by),
        number(one.limited_below),
    ]
}
