//! The command line: the `main` of a test without harness.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

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
    /// Targets to run on; all if none is named.
    targets: Vec<String>,
    /// Run only cases whose name contains TEXT; may be given several times.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
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
    #[arg(long, value_name = "N", default_value_t = Suite::default().jobs)]
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
    exact: bool,
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
    test_threads: Option<String>,
    #[arg(long, hide = true)]
    skip: Vec<String>,
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
    let suite = Suite {
        filters: arguments.filter.clone(),
        jobs: arguments.jobs,
        random: arguments.random,
        seed: arguments.seed,
        ..Suite::default()
    };
    let known: Vec<String> = subjects.iter().map(|subject| subject.name().to_owned()).collect();
    check_filters(&suite)?;
    let subjects = chosen(&arguments.targets, &known, subjects)?;
    if arguments.list {
        list(&suite, &known);
        return Ok(true);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(8).enable_all().build()?;
    let report = runtime.block_on(run(&suite, &subjects, &Console::new()));
    // The subjects may stop servers when they are dropped; a store may still block a thread.
    runtime.block_on(async { drop(subjects) });
    runtime.shutdown_timeout(Duration::from_secs(1));
    write(arguments, &report)?;
    show(&report);
    if report.totals().passed + report.totals().failed == 0 {
        eprintln!("error: nothing was executed: no case applies to these targets");
    }
    Ok(if arguments.allow_skips { report.is_success_but_for_skips() } else { report.is_success() })
}

fn check_filters(suite: &Suite) -> Result<(), BoxError> {
    for filter in &suite.filters {
        let one = Suite { filters: vec![filter.clone()], ..suite.clone() };
        if one.cases().is_empty() {
            return Err(format!("no case has {filter:?} in its name; --list names them all").into());
        }
    }
    Ok(())
}

fn chosen(
    wanted: &[String],
    known: &[String],
    subjects: Vec<Box<dyn Subject>>,
) -> Result<Vec<Arc<dyn Subject>>, BoxError> {
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(
            format!("there is no target {unknown:?} here; the targets are: {}", known.join(", ")).into()
        );
    }
    let chosen = subjects
        .into_iter()
        .filter(|subject| wanted.is_empty() || wanted.iter().any(|name| name == subject.name()));
    Ok(chosen.map(Arc::from).collect())
}

fn list(suite: &Suite, known: &[String]) {
    println!("targets: {}", known.join(", "));
    let cases = suite.cases();
    for (name, about) in &cases {
        println!("{name}: {about}");
    }
    println!("{} cases", cases.len());
}

fn write(arguments: &Arguments, report: &Report) -> Result<(), BoxError> {
    let create = |path: &PathBuf| {
        File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &arguments.report {
        report.write_json(create(path)?)?;
    }
    if let Some(path) = &arguments.junit {
        report.write_junit(create(path)?)?;
    }
    Ok(())
}

fn show(report: &Report) {
    println!("\n{}\n\n{}", table::table(report), table::reasons(report));
    let totals = report.totals();
    println!("{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped);
}
