//! `cargo xtask test`: all checks that a change has to pass.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use anyhow::{Result, bail};
use clap::Args;

use crate::executables::{self, Executable, Job};
use crate::settings::Servers;
use crate::step::{NotRun, Outcome, Totals, run as command, step};
use crate::targets::{Runs, TARGETS, TEST};
use crate::workspace::{Package, cargo, packages};
use crate::{availability::missing, conformance, containers, package};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Leave out the conformance suite.
    #[arg(long, conflicts_with = "all")]
    quick: bool,
    /// Run everything: also the tests that take long, lints, single features, documentation, packages, the benchmark's tests, servers in containers,
    /// and the suite on the examples, on each kind of connection and on other versions of the servers.
    #[arg(long)]
    all: bool,
    /// With --all: run the suite only on one target for each store and each fleet.
    #[arg(long, requires = "all")]
    usual_targets: bool,
    #[command(flatten)]
    servers: Servers,
}

/// Excluded, because the libraries that it compares with take longer to build than everything else.
const BENCH: &str = "ratelimit-bench";

/// The program of the README.
const FIRST: &str = "api";

type Work<'a> = Box<dyn FnOnce(&mut Totals) -> Result<()> + 'a>;

/// Runs the command. A step that fails does not stop the others.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let packages = packages()?;
    let built = OnceCell::new();
    let steps = steps(arguments, &packages, &built);
    let count = steps.len();
    let outcomes: Vec<Outcome> = steps
        .into_iter()
        .enumerate()
        .map(|(index, (name, work))| step(name, (index + 1, count), work))
        .collect();
    summary(&outcomes, arguments.servers.are_strict())
}

/// The executables of the tests, built by the first step that needs them.
type Built = OnceCell<Vec<Executable>>;

fn built(cell: &Built) -> Result<&[Executable]> {
    if cell.get().is_none() {
        let _ = cell.set(executables::build(&["--workspace", "--exclude", BENCH])?);
    }
    Ok(cell.get().map_or(&[], Vec::as_slice))
}

fn steps<'a>(
    arguments: &'a Arguments,
    packages: &'a [Package],
    cell: &'a Built,
) -> Vec<(&'static str, Work<'a>)> {
    let Arguments { quick, all, usual_targets, servers } = arguments;
    let targets = match (all, usual_targets) {
        (false, _) => Runs::Always,
        (true, true) => Runs::EachChange,
        (true, false) => Runs::Nightly,
    };
    let mut steps: Vec<(&'static str, Work<'a>)> = vec![
        ("format", Box::new(|totals| command(cargo().args(["fmt", "--all", "--check"]), totals))),
        ("build of the tests", Box::new(|_| built(cell).map(drop))),
        (
            "unit, integration and tidiness tests",
            Box::new(|totals| tests(built(cell)?, arguments, packages, totals)),
        ),
        ("documentation tests", Box::new(|totals| documentation_tests(servers, totals))),
    ];
    if !quick {
        let name =
            if targets == Runs::Nightly { "the suite on every target" } else { "the suite on each store" };
        let work = move |totals: &mut Totals| conformance::prove_all(built(cell)?, servers, targets, totals);
        steps.push((name, Box::new(work)));
    }
    if *all {
        steps.push(("lints", Box::new(lints)));
        steps.push((
            "servers in containers",
            Box::new(|totals| containers::test(built(cell)?, servers, totals)),
        ));
        steps.push(("documentation", Box::new(|totals| documentation(packages, totals))));
        steps.push(("each feature by itself", Box::new(|totals| features(packages, totals))));
        steps.push(("packages", Box::new(|totals| package::pack(&package::Arguments::default(), totals))));
        steps.push((
            "the benchmark's tests",
            Box::new(|totals| bench(built(cell)?, servers, packages, totals)),
        ));
    }
    steps
}

fn lints(totals: &mut Totals) -> Result<()> {
    let mut lints = cargo();
    lints.args(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]);
    command(&mut lints, totals)
}

/// With all features, and each published crate with those of its default: links may lead to what only a feature has.
fn documentation(packages: &[Package], totals: &mut Totals) -> Result<()> {
    let published = packages.iter().filter(|package| package.published);
    let alone = published.map(|package| vec!["--package", package.name.as_str()]);
    let mut results = Vec::new();
    for arguments in std::iter::once(vec!["--workspace", "--all-features"]).chain(alone) {
        let mut documentation = cargo();
        documentation.args(["doc", "--no-deps"]).args(arguments).env("RUSTDOCFLAGS", "-D warnings");
        results.push(command(&mut documentation, totals));
    }
    results.into_iter().collect()
}

/// Without the libraries that it compares with.
fn bench(others: &[Executable], servers: &Servers, packages: &[Package], totals: &mut Totals) -> Result<()> {
    let mut build = cargo();
    build.args(["test", "--no-run", "--message-format", "json-render-diagnostics", "--package", BENCH]);
    let built = executables::executables(&mut build)?;
    let tests: Vec<&Executable> = built.iter().filter(|executable| executable.is_test).collect();
    run_available(&tests, others, servers, packages, totals)
}

/// All tests but the suite, which is a step of its own. With `--all` also those that take long, and the suite on stores
/// that are not targets: those of the examples.
fn tests(
    executables: &[Executable],
    arguments: &Arguments,
    packages: &[Package],
    totals: &mut Totals,
) -> Result<()> {
    let Arguments { all, servers, .. } = arguments;
    let is_long = |executable: &Executable| {
        of_package(executable, packages).is_some_and(|package| package.long.contains(&executable.name))
    };
    let is_suite = |executable: &Executable| {
        let is_target = || TARGETS.iter().any(|target| target.package == executable.package);
        executable.name == TEST && (!all || is_target())
    };
    let tests = executables.iter().filter(|executable| executable.is_test && !is_suite(executable));
    let (long, tests): (Vec<&Executable>, Vec<&Executable>) = tests.partition(|test| !all && is_long(test));
    if !long.is_empty() {
        let names: Vec<String> = long.iter().map(ToString::to_string).collect();
        println!("left out, because they take long (--all runs them): {}", names.join("; "));
    }
    run_available(&tests, executables, servers, packages, totals)
}

/// The package whose settings apply to an executable; they do not apply to unit tests.
fn of_package<'p>(executable: &Executable, packages: &'p [Package]) -> Option<&'p Package> {
    let package = packages.iter().find(|package| package.name == executable.package);
    package.filter(|_| !executable.is_unit_tests)
}

/// Runs tests. Those whose servers are not available are not run; an example among `executables` tells which are.
fn run_available(
    tests: &[&Executable],
    executables: &[Executable],
    servers: &Servers,
    packages: &[Package],
    totals: &mut Totals,
) -> Result<()> {
    let needs = |executable: &Executable| -> &[String] {
        of_package(executable, packages).map_or(&[], |package| package.servers(&executable.name))
    };
    let needed = tests.iter().flat_map(|test| needs(test)).cloned().collect();
    let missing = missing(executables, servers, &needed)?;
    let mut jobs = Vec::new();
    for test in tests {
        let name = test.to_string();
        match needs(test).iter().find_map(|server| missing.get(server)) {
            Some(why) => totals.not_run.push(NotRun { what: name, why: why.clone(), required: true }),
            None => jobs.push(Job { name, command: servers.apply_to(test.command()) }),
        }
    }
    // Twice as many as there are processors: most of them wait for servers and timeouts.
    executables::run(jobs, 2 * executables::processors(), totals)
}

fn documentation_tests(servers: &Servers, totals: &mut Totals) -> Result<()> {
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--exclude", BENCH, "--all-features", "--no-fail-fast", "--doc"]);
    command(&mut servers.apply_to(tests), totals)
}

/// Each published crate, and the program that new users try, without features and with each feature alone.
fn features(packages: &[Package], totals: &mut Totals) -> Result<()> {
    let mut failures = Vec::new();
    for package in packages.iter().filter(|package| package.published || package.name == FIRST) {
        let alone = package.features.iter().filter(|feature| *feature != "default");
        for feature in [None].into_iter().chain(alone.map(Some)) {
            let mut check = cargo();
            check.args(["check", "--quiet", "--package", &package.name, "--no-default-features"]);
            check.args(feature.into_iter().flat_map(|feature| ["--features", feature]));
            if command(&mut check, totals).is_err() {
                failures.push(format!(
                    "{} with {}",
                    package.name,
                    feature.map_or("no features", String::as_str)
                ));
            }
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("these do not build: {}", failures.join(", "))
}

fn summary(outcomes: &[Outcome], strict: bool) -> Result<()> {
    println!("\n=== summary");
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for outcome in outcomes {
        totals += outcome.totals.clone();
        let word = if outcome.error.is_some() { "FAILED" } else { "ok" };
        println!("{word:7} {:7.1} s  {}", outcome.took.as_secs_f64(), outcome.name);
        if outcome.error.is_some() {
            failed.push(outcome.name.as_str());
            // A step that failed without a failed test counts as one failure.
            totals.failed += u64::from(outcome.totals.failed == 0);
        }
    }
    let seconds = outcomes.iter().map(|outcome| outcome.took.as_secs()).sum::<u64>();
    println!("{:7} {seconds:7} s", "");
    for outcome in outcomes {
        if let Some(error) = &outcome.error {
            println!("\n{}: {error:#}", outcome.name);
        }
    }
    let not_run = totals.not_run.len();
    if not_run > 0 {
        println!("\n{not_run} not run, because what they need cannot be had here:");
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for NotRun { what, why, .. } in &totals.not_run {
            by_reason.entry(why).or_default().push(what);
        }
        for (why, what) in by_reason {
            println!("- {why}\n  {}", what.join("\n  "));
        }
    }
    let required = totals.not_run.iter().filter(|not_run| not_run.required).count();
    if strict && required > 0 {
        failed.push("what was not run counts as a failure here");
        totals.failed += required as u64;
    }
    let skipped = if totals.skipped > 0 { format!(", {} skipped", totals.skipped) } else { String::new() };
    println!("\n{} passed, {} failed{skipped}", totals.passed, totals.failed);
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", failed.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn strict_summary(required: bool) -> Result<()> {
        let not_run = vec![NotRun { what: String::new(), why: String::new(), required }];
        let totals = Totals { not_run, ..Totals::default() };
        summary(&[Outcome { name: String::new(), took: Duration::ZERO, totals, error: None }], true)
    }

    #[test]
    fn what_was_not_run_fails_a_strict_run_only_if_it_is_required() {
        assert!(strict_summary(true).is_err());
        assert!(strict_summary(false).is_ok());
    }
}
