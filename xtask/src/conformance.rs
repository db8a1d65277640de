//! `cargo xtask conformance`: the conformance suite for stores.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::docker::has_docker;
use crate::executables::{self, Executable, Job};
use crate::report::Report;
use crate::settings::Servers;
use crate::step::{NotRun, Totals, shown};
use crate::targets::{Runs, TARGETS, TEST, chosen};
use crate::{junit, workspace};

/// The crate that opens the store at an address.
const STORES: &str = "ratelimit-stores";

#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// The targets to run; by default one target for each store.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Run only the cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Match names given by --filter exactly.
    #[arg(long)]
    exact: bool,
    /// Skip the cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Stop each target's run at its first failure.
    #[arg(long)]
    fail_fast: bool,
    /// Time limit of a case.
    #[arg(long, value_name = "SECONDS")]
    case_limit: Option<f64>,
    /// Write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the results to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Compare with the model on this many random claims.
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// Pass even if cases were skipped.
    #[arg(long)]
    allow_skips: bool,
    /// Run all targets: each kind of connection, and other versions of the servers.
    #[arg(long, conflicts_with = "targets")]
    all: bool,
    /// Run only on the store at this address: redis://host:6379, with options as its query. Cases that have to control the
    /// server are skipped.
    #[arg(long, value_name = "URL", conflicts_with = "targets")]
    store: Option<String>,
    /// List the targets without running them.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    servers: Servers,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        for target in TARGETS {
            let only = if target.runs == Runs::Nightly { " (--all)" } else { "" };
            println!("{:24} {:20} {}{only}", target.name, target.package, target.about);
        }
        return Ok(());
    }
    match &arguments.store {
        Some(url) => prove_at(arguments, url),
        None => {
            let unnamed = if arguments.all { Runs::Nightly } else { Runs::EachChange };
            prove(arguments, unnamed, None, &mut Totals::default())
        }
    }
}

/// Runs on the store at this address.
fn prove_at(arguments: &Arguments, url: &str) -> Result<()> {
    let executables = build(&[STORES])?;
    let run = Run::new("url", STORES, &executables)?;
    let mut command = run.command(arguments);
    command.env("RATELIMIT_STORE_URL", url);
    if !arguments.allow_skips {
        command.arg("--allow-skips");
    }
    println!("$ {}", shown(&command));
    let status = command.status()?;
    let mut report = Report::default();
    report.add(&run.json)?;
    conclude(arguments, &report, &[run])?;
    ensure!(status.success(), "the suite ended with {status}");
    Ok(())
}

/// Runs the targets that run then, with these executables.
pub(crate) fn prove_all(
    executables: &[Executable],
    servers: &Servers,
    unnamed: Runs,
    totals: &mut Totals,
) -> Result<()> {
    let arguments = Arguments { servers: servers.clone(), ..Arguments::default() };
    prove(&arguments, unnamed, Some(executables), totals)
}

fn prove(
    arguments: &Arguments,
    unnamed: Runs,
    built: Option<&[Executable]>,
    totals: &mut Totals,
) -> Result<()> {
    let targets = chosen(&arguments.targets, unnamed)?;
    let built_here;
    let executables = match built {
        Some(executables) => executables,
        None => {
            built_here = build(&targets.iter().map(|target| target.package).collect::<Vec<_>>())?;
            &built_here
        }
    };
    let runs = targets.iter().map(|target| Run::new(target.name, target.package, executables));
    let runs = runs.collect::<Result<Vec<_>>>()?;
    // Those in this process mostly wait, so each runs beside those of servers, one more than there are processors.
    let (short, long): (Vec<&Run<'_>>, Vec<&Run<'_>>) = runs.iter().partition(|run| run.is_in_process());
    let mut short = short.into_iter();
    let mut jobs: Vec<&Run<'_>> = Vec::new();
    for run in long.into_iter().rev() {
        jobs.push(run);
        jobs.extend(short.next());
    }
    let jobs = jobs.into_iter().chain(short);
    let jobs =
        jobs.map(|run| Job { name: format!("the suite on {}", run.target), command: run.command(arguments) });
    // The reports count the cases.
    let outcome = executables::run(jobs.collect(), executables::processors() + 1, &mut Totals::default());
    let mut problems: Vec<String> = outcome.err().map(|error| error.to_string()).into_iter().collect();
    let mut report = Report::default();
    for run in runs.iter().filter(|run| run.json.exists()) {
        if report.add(&run.json).is_err() {
            problems.push(format!("the suite on {} has written no report that can be read", run.target));
        }
    }
    conclude(arguments, &report, &runs)?;
    let mut counts = report.totals();
    // A target that could not be run has not been tested, so it does not pass.
    for target in targets.iter().filter(|target| !report.has(target.name)) {
        problems.push(format!("{}: no case has run", target.name));
        counts.failed += 1;
    }
    let lines = |reason: &str| reason.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    counts.not_run.extend(report.unavailable.iter().map(|(name, why)| NotRun {
        what: format!("target {name}"),
        why: lines(why),
        required: true,
    }));
    *totals += counts.clone();
    if counts.passed > 0 {
        println!("\n{}\n", report.table());
    }
    problems.extend(report.reasons(arguments.allow_skips));
    counts.not_run.iter().for_each(|NotRun { what, why, .. }| println!("not run: {what}: {why}"));
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    ensure!(counts.failed == 0, "{} cases failed", counts.failed);
    Ok(())
}

/// Writes the requested files.
fn conclude(arguments: &Arguments, report: &Report, runs: &[Run<'_>]) -> Result<()> {
    if let Some(file) = &arguments.report {
        report.write(file)?;
    }
    if let Some(file) = &arguments.junit {
        let written: Vec<_> = runs.iter().map(|run| run.junit.clone()).filter(|file| file.exists()).collect();
        junit::merge(&written, file)?;
    }
    Ok(())
}

/// Builds the suite of these crates.
fn build(packages: &[&str]) -> Result<Vec<Executable>> {
    let mut selection: Vec<&str> = packages.iter().flat_map(|package| ["--package", package]).collect();
    if has_docker() {
        selection.extend(["--package", "ratelimit-testbed"]);
    }
    selection.extend(["--test", TEST]);
    executables::build(&selection)
}

/// The suite on one target.
struct Run<'a> {
    target: &'static str,
    executable: &'a Executable,
    /// Its reports.
    json: PathBuf,
    junit: PathBuf,
}

impl<'a> Run<'a> {
    fn new(target: &'static str, package: &str, executables: &'a [Executable]) -> Result<Self> {
        let executable = executables.iter().find(|one| one.package == package && one.name == TEST);
        let executable = executable.with_context(|| format!("{package} has no test called {TEST}"))?;
        let folder = workspace::target().join(TEST);
        std::fs::create_dir_all(&folder)?;
        let [json, junit] = ["json", "xml"].map(|kind| folder.join(format!("{target}.{kind}")));
        for file in [&json, &junit] {
            let _ = std::fs::remove_file(file);
        }
        Ok(Self { target, executable, json, junit })
    }

    fn is_in_process(&self) -> bool {
        ["ratelimit-memory", "ratelimit-cluster"].contains(&&*self.executable.package)
    }

    fn command(&self, arguments: &Arguments) -> Command {
        let mut command = arguments.servers.apply_to(self.executable.command());
        command.arg(self.target).arg("--report").arg(&self.json).arg("--junit").arg(&self.junit);
        for text in &arguments.filter {
            command.args(["--filter", text]);
        }
        for text in &arguments.skip {
            command.args(["--skip", text]);
        }
        command.args(arguments.exact.then_some("--exact"));
        command.args(arguments.fail_fast.then_some("--fail-fast"));
        if let Some(seconds) = arguments.case_limit {
            command.args(["--case-limit", &seconds.to_string()]);
        }
        if let Some(count) = arguments.random {
            command.args(["--random", &count.to_string()]);
        }
        command.args(arguments.allow_skips.then_some("--allow-skips"));
        command.args((!arguments.servers.are_strict()).then_some("--allow-unavailable"));
        command
    }
}
