//! `cargo xtask test`: everything that a change has to pass.

use anyhow::{Result, bail};
use clap::Args;

use crate::settings::Servers;
use crate::step::{Outcome, Totals, run as command, step};
use crate::targets::{TARGETS, TEST};
use crate::workspace::{Package, cargo, packages};
use crate::{conformance, containers};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Leave out the slow parts: features one by one, documentation, the suite on every store.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    servers: Servers,
}

/// It is tested without its peers: what they depend on takes longer to build than all of the rest.
const BENCH: &str = "ratelimit-bench";

type Work<'a> = Box<dyn FnOnce(&mut Totals) -> Result<()> + 'a>;

/// Runs the command. A step that fails does not keep the others from running.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let packages = packages()?;
    let steps = steps(arguments, &packages);
    let count = steps.len();
    let outcomes: Vec<Outcome> = steps
        .into_iter()
        .enumerate()
        .map(|(index, (name, work))| step(name, (index + 1, count), work))
        .collect();
    summary(&outcomes)
}

fn steps<'a>(arguments: &'a Arguments, packages: &'a [Package]) -> Vec<(&'static str, Work<'a>)> {
    let mut steps: Vec<(&'static str, Work<'a>)> = vec![
        ("format", Box::new(|totals| command(cargo().args(["fmt", "--all", "--check"]), totals))),
        ("lints", Box::new(lints)),
        ("unit, integration and tidiness tests", Box::new(|totals| tests(arguments, packages, totals))),
        (
            "documentation tests",
            Box::new(|totals| command(&mut workspace_tests(arguments, &["--doc"]), totals)),
        ),
    ];
    if !arguments.quick {
        steps.push(("documentation", Box::new(documentation)));
        steps.push(("each feature by itself", Box::new(|totals| features(packages, totals))));
        steps
            .push(("servers in containers", Box::new(|totals| containers::test(&arguments.servers, totals))));
        steps.push((
            "the suite on every store",
            Box::new(|totals| conformance::prove_all(&arguments.servers, totals)),
        ));
    }
    steps
}

fn lints(totals: &mut Totals) -> Result<()> {
    let mut lints = cargo();
    lints.args(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]);
    command(&mut lints, totals)
}

fn documentation(totals: &mut Totals) -> Result<()> {
    let mut documentation = cargo();
    documentation
        .args(["doc", "--workspace", "--all-features", "--no-deps"])
        .env("RUSTDOCFLAGS", "-D warnings");
    command(&mut documentation, totals)
}

/// All tests but the suite on the targets, which has a step of its own. Programs and examples are built on the way.
fn tests(arguments: &Arguments, packages: &[Package], totals: &mut Totals) -> Result<()> {
    let others = packages.iter().filter(|package| package.name != BENCH);
    let mut names: Vec<&str> = others.flat_map(|package| &package.tests).map(String::as_str).collect();
    names.retain(|name| *name != TEST);
    names.sort_unstable();
    names.dedup();
    let mut selection = vec!["--lib", "--bins", "--examples"];
    selection.extend(names.iter().flat_map(|name| ["--test", name]));
    let mut outcome = command(&mut workspace_tests(arguments, &selection), totals);
    let mut bench = cargo();
    bench.args(["test", "--package", BENCH, "--no-fail-fast"]);
    arguments.servers.tell(&mut bench);
    outcome = outcome.and(command(&mut bench, totals));
    for package in packages {
        let is_target = TARGETS.iter().any(|target| target.package == package.name);
        if !is_target && package.tests.iter().any(|name| name == TEST) {
            let mut suite = cargo();
            suite.args(["test", "--package", &package.name, "--all-features", "--test", TEST]);
            arguments.servers.tell(&mut suite);
            outcome = outcome.and(command(&mut suite, totals));
        }
    }
    outcome
}

fn workspace_tests(arguments: &Arguments, selection: &[&str]) -> std::process::Command {
    let mut tests = cargo();
    tests
        .args(["test", "--workspace", "--exclude", BENCH, "--all-features", "--no-fail-fast"])
        .args(selection);
    arguments.servers.tell(&mut tests);
    tests
}

/// Each published crate with no features, and with each one alone.
fn features(packages: &[Package], totals: &mut Totals) -> Result<()> {
    let mut failures = Vec::new();
    for package in packages.iter().filter(|package| package.published) {
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

fn summary(outcomes: &[Outcome]) -> Result<()> {
    println!("\n=== summary");
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for outcome in outcomes {
        totals += outcome.totals;
        let word = if outcome.error.is_some() { "FAILED" } else { "ok" };
        println!("{word:7} {:7.1} s  {}", outcome.took.as_secs_f64(), outcome.name);
        if outcome.error.is_some() {
            failed.push(outcome.name.as_str());
            // A step that failed without a failed test counts as one.
            totals.failed += u64::from(outcome.totals.failed == 0);
        }
    }
    for outcome in outcomes {
        if let Some(error) = &outcome.error {
            println!("\n{}: {error:#}", outcome.name);
        }
    }
    let skipped = if totals.skipped > 0 { format!(", {} skipped", totals.skipped) } else { String::new() };
    println!("\n{} passed, {} failed{skipped}", totals.passed, totals.failed);
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", failed.join("; "))
}
