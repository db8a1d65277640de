//! `report`: the results of a replay as a page of HTML.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use ratelimit_core::Limits;

use super::log::Log;
use super::output::{check_writable, print};
use super::replay::replay;
use crate::args::ReportArgs;
use crate::compare::{can_be_compared, compare};
use crate::engine::Trace;
use crate::page::Page;
use crate::results::Algorithms;
use crate::table::number;

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        !args.compare || !args.trial.limit.is_empty(),
        "--compare needs --limit: it compares all algorithms with the quota and the period of each"
    );
    let path = &args.output;
    let is_stdout = path == Path::new("-");
    if !is_stdout {
        check_writable(path)?;
    }
    let (mut results, traces) = replay(&args.trial, args.compare)?;
    if args.hide_keys {
        results.hide_keys();
    }
    let page = Page {
        command: command(),
        policies: args.trial.policies.as_ref().map(|path| path.display().to_string()),
        compared: args.compare.then(|| compared(&args.trial.limit, &traces)).transpose()?,
        results,
    };
    let html = page.html()?;
    if is_stdout {
        print(&html)?;
    } else {
        std::fs::write(path, &html).with_context(|| format!("{}: cannot be written", path.display()))?;
        print(&format!("{}: {} bytes\n", path.display(), number(html.len() as u64)))?;
    }
    Log::check(&page.results.lines, page.results.left_out, &page.results.from)
}

/// The command line of this process, quoted for a shell, so that a reader can run it again.
fn command() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let quoted = arguments.map(|argument| match shlex::try_quote(&argument) {
        Ok(quoted) => quoted.into_owned(),
        Err(_) => argument,
    });
    ["ratelimit-lab".to_owned()].into_iter().chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Compares the algorithms with each pair of quota and period that the limits have. Also returns why other limits are not
/// compared.
fn compared(limits: &[Limits], traces: &[Trace]) -> anyhow::Result<(Vec<Algorithms>, BTreeSet<String>)> {
    let (mut comparable, mut not_compared, mut seen) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for limit in limits.iter().flat_map(|limits| limits.iter()) {
        match can_be_compared(limit) {
            Ok(()) if seen.insert((limit.quota(), limit.period())) => comparable.push(limit),
            Ok(()) => {}
            Err(error) => drop(not_compared.insert(format!("{error:#}"))),
        }
    }
    let pairs = traces.iter().flat_map(|trace| comparable.iter().map(move |limit| (trace, *limit)));
    let compared = pairs.map(|(trace, limit)| {
        let comparison = compare(trace, limit, None)?;
        Ok(Algorithms { limit: limit.clone(), by: trace.by().to_owned(), comparison })
    });
    Ok((compared.collect::<anyhow::Result<_>>()?, not_compared))
}
