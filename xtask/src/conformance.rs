//! `cargo xtask conformance`: the suite for stores.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::junit;
use crate::report::Report;
use crate::settings::{Servers, has_docker};
use crate::step::{Totals, shown};
use crate::targets::{TARGETS, TEST, Target, by_package};
use crate::workspace::{cargo, root, target};

#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// What to run on; all targets if none is named.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Run only the cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// The names given by --filter are whole names.
    #[arg(long)]
    exact: bool,
    /// Leave out the cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// End each target's run with its first failure.
    #[arg(long)]
    fail_fast: bool,
    /// How long a case may take.
    #[arg(long, value_name = "SECONDS")]
    case_limit: Option<f64>,
    /// Write what was found out to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write it to this file, as JUnit.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Compare with the model on this many random histories.
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// Let the run pass although cases were skipped.
    #[arg(long)]
    allow_skips: bool,
    /// List the targets and do nothing.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    servers: Servers,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        for target in TARGETS {
            println!("{:20} {:20} {}", target.name, target.package, target.about);
        }
        return Ok(());
    }
    prove(arguments, &mut Totals::default())
}

/// Runs all targets.
pub(crate) fn prove_all(servers: &Servers, totals: &mut Totals) -> Result<()> {
    prove(&Arguments { servers: servers.clone(), ..Arguments::default() }, totals)
}

fn prove(arguments: &Arguments, totals: &mut Totals) -> Result<()> {
    let groups = by_package(&arguments.targets)?;
    let folder = target().join(TEST);
    std::fs::create_dir_all(&folder)?;
    let mut report = Report::default();
    let mut suites = Vec::new();
    let mut problems = Vec::new();
    let asked: Vec<Target> = groups.iter().flat_map(|(_, targets)| targets).copied().collect();
    for (package, targets) in groups {
        let files = [folder.join(format!("{package}.json")), folder.join(format!("{package}.xml"))];
        match one(arguments, package, &targets, &files) {
            Ok(()) => {}
            Err(error) => problems.push(error.to_string()),
        }
        let [json, xml] = files;
        if json.exists() && report.add(&json).is_err() {
            problems.push(format!("{package} has written no report that can be read"));
        }
        suites.extend(xml.exists().then_some(xml));
    }
    conclude(arguments, &report, &suites)?;
    let mut counts = report.totals();
    // A target that cannot be had has proved nothing, and does not pass for it.
    for target in asked.iter().filter(|target| !report.has(target.name)) {
        problems.push(format!("{}: no case has run", target.name));
        counts.failed += 1;
    }
    *totals += counts;
    if counts.passed > 0 {
        println!("\n{}\n", report.table());
    }
    problems.extend(report.reasons(arguments.allow_skips));
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    ensure!(counts.failed == 0, "{} cases failed", counts.failed);
    Ok(())
}

/// Writes the files that were asked for.
fn conclude(arguments: &Arguments, report: &Report, suites: &[PathBuf]) -> Result<()> {
    if let Some(file) = &arguments.report {
        report.write(file)?;
    }
    if let Some(file) = &arguments.junit {
        junit::merge(suites, file)?;
    }
    Ok(())
}

/// Runs the targets of one crate.
fn one(arguments: &Arguments, package: &str, targets: &[Target], files: &[PathBuf; 2]) -> Result<()> {
    let names: Vec<&str> = targets.iter().map(|target| target.name).collect();
    let test = root().join("crates").join(package).join("tests").join(TEST).with_extension("rs");
    ensure!(test.exists(), "{} cannot be had: there is no {}", names.join(", "), relative(&test));
    for file in files {
        let _ = std::fs::remove_file(file);
    }
    let mut command = command(arguments, package, &names, files);
    println!("$ {}", shown(&command));
    let status = command.status()?;
    if !status.success() {
        bail!("{}: the suite ended with {status}", names.join(", "));
    }
    Ok(())
}

fn command(arguments: &Arguments, package: &str, names: &[&str], files: &[PathBuf; 2]) -> Command {
    let mut command = cargo();
    command.args(["test", "--package", package, "--all-features"]);
    if has_docker() {
        command.args(["--package", "ratelimit-testbed", "--features", "ratelimit-testbed/docker"]);
    }
    command.args(["--test", TEST, "--"]).args(names);
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
    command.arg("--report").arg(&files[0]).arg("--junit").arg(&files[1]);
    if let Some(count) = arguments.random {
        command.args(["--random", &count.to_string()]);
    }
    if arguments.allow_skips {
        command.arg("--allow-skips");
    }
    arguments.servers.tell(&mut command);
    command
}

fn relative(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}
