//! Reads the logs that the arguments name, or generates one, and shows the progress.

use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::kept::Kept;
use crate::args::LogArgs;
use crate::engine::{Engine, Plan, Replayed, Trace};
use crate::field::Field;
use crate::format::Expected;
use crate::input::{LinesRead, Reading, Source, bytes_read, read, read_one};
use crate::model::{LogText, Traffic, Written};
use crate::record::{Record, Wanted};
use crate::table::{count, number};

/// What was read, and from where.
pub(crate) struct Log {
    pub(crate) lines: LinesRead,
    /// The names of the files or the options that generate the traffic, as text for people.
    pub(crate) from: String,
    /// Requests that were read but, as the arguments say, not replayed.
    pub(crate) left_out: u64,
}

/// A log that was replayed.
pub(crate) struct Replay {
    pub(crate) log: Log,
    pub(crate) replayed: Replayed,
    pub(crate) traces: Vec<Trace>,
    /// If the log was read again because its requests were more out of order than usual: the bound with which it was.
    pub(crate) sorted_by: Option<Duration>,
}

/// The bound on how far requests may be out of order, unless the arguments set one.
const USUAL: Duration = Duration::from_secs(10);

/// Replays the requests of the log against this plan, with at most `top` keys for each column. If they are more out of order
/// than usual, and the arguments set no bound, files are read again with the bound that they need.
pub(super) fn replay(args: &LogArgs, plan: Plan, top: usize) -> anyhow::Result<Replay> {
    let mut plan = Plan { out_of_order: args.out_of_order.unwrap_or(USUAL), ..plan };
    let first = replay_once(args, &plan, top)?;
    let can_be_read_again = args.files.iter().all(|source| source.size().is_some());
    if args.out_of_order.is_some() || first.replayed.too_late == 0 || !can_be_read_again {
        return Ok(first);
    }
    let bound = Duration::from_nanos(first.replayed.late_by);
    drop(first); // before as much memory is used again
    plan.out_of_order = bound;
    Ok(Replay { sorted_by: Some(bound), ..replay_once(args, &plan, top)? })
}

fn replay_once(args: &LogArgs, plan: &Plan, top: usize) -> anyhow::Result<Replay> {
    let mut wanted = wanted(args);
    let mut kept = Kept::new(args, &mut wanted)?;
    let mut engine = Engine::new(plan, &mut wanted)?;
    let mut log = each(args, wanted, |record| if kept.keeps(record) { engine.add(record) } else { Ok(()) })?;
    log.left_out = kept.left_out;
    let (replayed, traces) = engine.finish(top)?;
    Ok(Replay { log, replayed, traces, sorted_by: None })
}

impl Log {
    /// Checks, after the results were shown, that they are those of the log.
    ///
    /// # Errors
    /// If no request was read, or all were left out, or if fewer than one line in ten that is not empty was one.
    pub(crate) fn check(lines: &LinesRead, left_out: u64, from: &str) -> anyhow::Result<()> {
        let what = (count(lines.requests, "request"), count(lines.bad, "bad line"));
        anyhow::ensure!(lines.requests > 0, "{from}: no request was read; {} are left out", what.1);
        anyhow::ensure!(
            lines.requests > left_out,
            "{from}: no request is left by --from, --to and --without-path"
        );
        anyhow::ensure!(
            lines.bad <= lines.requests.saturating_mul(9),
            "{from}: nearly nothing was read: {}, and {} left out",
            what.0,
            what.1
        );
        Ok(())
    }
}

/// The options that name the field of the log with a part of a request, what they are for, and that part.
fn named(args: &LogArgs) -> [(&'static str, &'static str, Field, Option<&str>); 5] {
    [
        ("--ip-field", "the client's address", Field::Ip, args.ip_field.as_deref()),
        ("--method-field", "the method", Field::Method, args.method_field.as_deref()),
        ("--path-field", "the path", Field::Path, args.path_field.as_deref()),
        ("--status-field", "the status", Field::Status, args.status_field.as_deref()),
        ("--duration-field", "the duration", Field::Duration, args.duration_field.as_deref()),
    ]
}

/// The time, and the fields that are named by themselves.
fn wanted(args: &LogArgs) -> Wanted {
    let time = Wanted::time(args.time_field.as_deref());
    named(args).into_iter().fold(time, |wanted, (_, _, field, name)| wanted.with_name(field, name))
}

/// Reads the logs, or generates one if there are no files, and calls `each` for each request.
fn each(
    args: &LogArgs,
    wanted: Wanted,
    mut each: impl FnMut(&Record) -> anyhow::Result<()>,
) -> anyhow::Result<Log> {
    for (option, what, field, name) in named(args) {
        anyhow::ensure!(
            name.is_none() || wanted.fields().contains(&field),
            "{option} is for {what}, but nothing is counted by {}",
            option.trim_start_matches("--").trim_end_matches("-field")
        );
    }
    anyhow::ensure!(
        args.trusted_proxies.is_empty() || wanted.fields().contains(&Field::Ip),
        "--trusted-proxies is for the client's address, but nothing is counted by ip"
    );
    let expected =
        Expected { format: args.format, pattern: args.pattern.clone(), time_zone: args.timezone.clone() };
    let reading = Reading { wanted, expected, strict: args.strict };
    if args.files.is_empty() {
        let spec = args.model.spec();
        let text = LogText::new(Traffic::new(&spec)?, spec.keys, Written::Json);
        let mut lines = LinesRead::default();
        read_one("generated traffic", text, &reading, &mut lines, &mut each)?;
        return Ok(Log { lines, from: format!("generated traffic ({spec})"), left_out: 0 });
    }
    let bytes = Arc::new(AtomicU64::new(0));
    let progress = Progress::new(&args.files, &bytes);
    let mut count = 0_u64;
    let lines = read(&args.files, &reading, &bytes, |record| {
        count += 1;
        if count & 0xffff == 0 {
            progress.show(count);
        }
        each(record)
    })?;
    progress.bar.finish_and_clear();
    let names: Vec<String> = args.files.iter().map(Source::name).collect();
    Ok(Log { lines, from: names.join(", "), left_out: 0 })
}

/// A progress bar if standard error is a terminal, otherwise nothing.
struct Progress {
    bar: ProgressBar,
    bytes: Arc<AtomicU64>,
}

impl Progress {
    fn new(files: &[Source], bytes: &Arc<AtomicU64>) -> Self {
        let total = files.iter().map(Source::size).sum::<Option<u64>>();
        let bar = match total {
            _ if !stderr().is_terminal() => ProgressBar::hidden(),
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        let template = match total {
            Some(_) => "{bar:30} {bytes} of {total_bytes}, {msg} requests, {per_sec} left {eta}",
            None => "{spinner} {bytes}, {msg} requests, {per_sec}",
        };
        // The rate is that of requests, since the one of indicatif would be of bytes.
        let template = template.replace("{per_sec}", "{prefix}/s");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, bytes: bytes.clone() }
    }

    fn show(&self, count: u64) {
        self.bar.set_position(bytes_read(&self.bytes));
        self.bar.set_message(number(count));
        let millis = u64::try_from(self.bar.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.bar.set_prefix(number(count.saturating_mul(1_000) / millis));
    }
}
