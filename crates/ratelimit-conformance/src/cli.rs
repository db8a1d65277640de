//! The command line: the `main` of a test with its own harness.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use crate::files::Files;
use crate::progress::Console;
use crate::report::Report;
use crate::runner::run;
use crate::subject::Subject;
use crate::suite::Suite;
use crate::{BoxError, table};

/// Tests rate limit stores against the contract.
#[derive(Parser, Debug)]
#[command(name = "conformance")]
struct Arguments {
    /// Targets to run on; all by default. A name that is not a target is a filter, as for other tests.
    names: Vec<String>,
    /// Run only cases whose name contains TEXT. May be repeated.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Skip cases whose name contains TEXT. May be repeated.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Filters and skips match whole names.
    #[arg(long)]
    exact: bool,
    /// End the run at the first failure.
    #[arg(long)]
    fail_fast: bool,
    /// Fail a case that takes longer.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "120")]
    case_limit: Duration,
    /// List targets and cases without running them.
    #[arg(long)]
    list: bool,
    /// Write the results to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the results to FILE in JUnit's format.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Succeed even if cases are skipped.
    #[arg(long)]
    allow_skips: bool,
    /// Succeed even if the servers of some targets are not available.
    #[arg(long)]
    allow_unavailable: bool,
    /// The number of cases that run concurrently.
    #[arg(long, value_name = "N", alias = "test-threads", default_value_t = Suite::default().jobs)]
    jobs: usize,
    /// The number of random claims to compare with the model.
    #[arg(long, value_name = "N", env = "RATELIMIT_RANDOM", default_value_t = Suite::default().random)]
    random: u64,
    /// The seed of the random numbers. A failure names it.
    #[arg(long, value_name = "N", env = "RATELIMIT_SEED", default_value_t = Suite::default().seed)]
    seed: u64,
    #[command(flatten)]
    harness: Harness,
}

/// Options that `cargo test` may pass to every test binary. They have no effect.
#[derive(clap::Args, Debug)]
#[allow(clippy::struct_excessive_bools, dead_code)]
struct Harness {
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    no_capture: bool,
    #[arg(long, hide = true)]
    show_output: bool,
    #[arg(long, short, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, hide = true)]
    include_ignored: bool,
    #[arg(long, hide = true)]
    test: bool,
    #[arg(long, hide = true)]
    bench: bool,
    #[arg(long, hide = true)]
    report_time: bool,
    #[arg(long, hide = true)]
    format: Option<String>,
    #[arg(long, hide = true)]
    color: Option<String>,
    #[arg(long, hide = true)]
    logfile: Option<String>,
    #[arg(short = 'Z', hide = true)]
    unstable: Vec<String>,
}

/// Runs the suite on these subjects with the options of the command line: the `main` of a test with its own harness.
///
/// Returns a failure if a case fails, if one is skipped without `--allow-skips`, if a subject is
/// [unavailable](Subject::unavailable) without `--allow-unavailable`, if no case applies, if a filter matches no case, or if
/// a target is unknown.
pub fn main(subjects: Vec<Box<dyn Subject>>) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    match start(&arguments, subjects) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn start(arguments: &Arguments, subjects: Vec<Box<dyn Subject>>) -> Result<bool, BoxError> {
    let known: Vec<String> = subjects.iter().map(|subject| subject.name().to_owned()).collect();
    let (targets, filters): (Vec<_>, Vec<_>) =
        arguments.names.iter().cloned().partition(|name| known.contains(name));
    let suite = Suite {
        filters: [arguments.filter.clone(), filters.clone()].concat(),
        skip: arguments.skip.clone(),
        exact: arguments.exact,
        jobs: arguments.jobs,
        random: arguments.random,
        seed: arguments.seed,
        case_limit: arguments.case_limit,
        fail_fast: arguments.fail_fast,
    };
    check_names(&suite, &filters, &known)?;
    if arguments.list {
        list(&suite, &known);
        return Ok(true);
    }
    let subjects = subjects.into_iter().filter(|subject| is_chosen(subject.name(), &targets));
    let subjects: Vec<Arc<dyn Subject>> = subjects.map(Arc::from).collect();
    let number = subjects.len();
    let mut progress = (Console::new(), Files::new(arguments.report.as_ref(), arguments.junit.as_ref())?);
    let report = run(&suite, &subjects, &mut progress);
    progress.1.write(&report)?;
    show(&report);
    // Dropping a subject may stop a server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { drop(subjects) });
    runtime.shutdown_background();
    let totals = report.totals();
    let nothing_to_run_on = number > 0 && report.unavailable.len() == number;
    Ok((totals.passed > 0 || nothing_to_run_on)
        && totals.failed == 0
        && (arguments.allow_skips || totals.skipped == 0)
        && (arguments.allow_unavailable || report.unavailable.is_empty()))
}

/// Each filter must match a case: a typing error must not look like a success.
fn check_names(suite: &Suite, names: &[String], known: &[String]) -> Result<(), BoxError> {
    for filter in &suite.filters {
        let one = Suite { filters: vec![filter.clone()], skip: Vec::new(), ..suite.clone() };
        if !one.cases().is_empty() {
            continue;
        }
        let whole = if suite.exact { "is called" } else { "has in its name" };
        let target = if names.contains(filter) {
            format!("there is no target {filter:?} here (the targets are: {}), and ", known.join(", "))
        } else {
            String::new()
        };
        return Err(format!("{target}no case {whole} {filter:?}; --list names them all").into());
    }
    Ok(())
}

fn is_chosen(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) if !limit.is_zero() => Ok(limit),
        Ok(_) => Err("no case ends in no time".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn list(suite: &Suite, known: &[String]) {
    println!("targets: {}", known.join(", "));
    let cases = suite.cases();
    for (name, about) in &cases {
        println!("{name}: {about}");
    }
    println!("{} cases", cases.len());
}

fn show(report: &Report) {
    let totals = report.totals();
    if totals.passed + totals.failed == 0 && report.unavailable.is_empty() {
        eprintln!("error: nothing was executed: no case applies to these targets");
    }
    println!("\n{}\n\n{report}", table::table(report));
}
