//! The command line: the `main` of a test without harness.

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

/// Proves rate limit stores against the contract.
#[derive(Parser, Debug)]
#[command(name = "conformance")]
struct Arguments {
    /// Targets to run on, all if none is named; a name that is no target's is a filter, as for other tests.
    names: Vec<String>,
    /// Run only cases whose name contains TEXT; may be given several times.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Leave out cases whose name contains TEXT; may be given several times.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Filters and skips are whole names and not parts of names.
    #[arg(long)]
    exact: bool,
    /// Start no further case when one has failed.
    #[arg(long)]
    fail_fast: bool,
    /// A case that takes longer has hung, and fails.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "120")]
    case_limit: Duration,
    /// List targets and cases, and run nothing.
    #[arg(long)]
    list: bool,
    /// Write the results to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the results to FILE in JUnit's format.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Succeed although cases were skipped.
    #[arg(long)]
    allow_skips: bool,
    /// How many cases run side by side.
    #[arg(long, value_name = "N", alias = "test-threads", default_value_t = Suite::default().jobs)]
    jobs: usize,
    /// How many random claims to compare with the model.
    #[arg(long, value_name = "N", env = "RATELIMIT_RANDOM", default_value_t = Suite::default().random)]
    random: u64,
    /// What the random numbers begin with; a failure names it.
    #[arg(long, value_name = "N", env = "RATELIMIT_SEED", default_value_t = Suite::default().seed)]
    seed: u64,
    #[command(flatten)]
    harness: Harness,
}

/// What `cargo test` may pass on to every test binary. Without effect here.
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

/// Runs the suite on these subjects as the command line says; the `main` of a test without harness.
///
/// Comes back with a failure if a case failed, if one was skipped and `--allow-skips` was not given, if nothing was
/// executed, if a filter matches no case, or if a target is unknown.
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
    let mut progress = (Console::new(), Files::new(arguments.report.as_ref(), arguments.junit.as_ref())?);
    let report = run(&suite, &subjects, &mut progress);
    progress.1.write(&report)?;
    show(&report);
    // The subjects may stop servers when they are dropped.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { drop(subjects) });
    runtime.shutdown_background();
    Ok(if arguments.allow_skips { report.is_success_but_for_skips() } else { report.is_success() })
}

/// Each filter must match a case, so that one with a typing error does not pass for a success.
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
    println!("\n{}\n\n{}", table::table(report), table::reasons(report));
    print!("{}", table::left_out(report));
    let totals = report.totals();
    if report.not_run > 0 {
        println!("NOTE {} cases were not run after a failure", report.not_run);
    }
    if totals.passed + totals.failed == 0 {
        eprintln!("error: nothing was executed: no case applies to these targets");
    }
    println!("{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped);
}
