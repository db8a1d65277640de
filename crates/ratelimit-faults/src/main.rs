//! Fails the servers of the stores at random under load from several processes, and checks the history of all calls:
//! `cargo xtask faults`.
#![forbid(unsafe_code)]

mod bed;
mod clock;
mod crew;
mod fault;
mod history;
mod load;
mod log;
mod plan;
mod proxy;
mod report;
mod rule;
mod run;
mod stack;
mod target;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand, ValueEnum as _};
use rand::RngExt as _;

use crate::report::Row;
use crate::stack::Broken;
use crate::target::Target;

/// Fails servers at random under load, and checks that the stores keep their guarantees.
#[derive(Parser)]
#[command(
    name = "cargo xtask faults",
    bin_name = "cargo xtask faults",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// A process that calls the store; started by the run.
    #[command(hide = true)]
    Worker(worker::Arguments),
}

#[derive(Args)]
struct Run {
    /// The targets; all by default.
    #[arg(value_name = "TARGET")]
    targets: Vec<Target>,
    /// About how long the run takes in total, without the starts of servers. Each target has at least one fault.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// What the plan is made from; by default another one each time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the plan without running it.
    #[arg(long)]
    plan: bool,
    /// Write all figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Install the Debian package of what is not available otherwise; implied by CI=true.
    #[arg(long)]
    install: bool,
    /// Break the store on purpose, to see that the run fails.
    #[arg(long, value_name = "HOW", hide = true)]
    broken: Option<Broken>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Some(Command::Worker(arguments)) => worker::run(arguments).await.map(|()| true),
        None => run(&arguments.run).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the plan; returns whether all guarantees were kept.
async fn run(arguments: &Run) -> Result<bool> {
    let seed = arguments.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    let targets = match arguments.targets.as_slice() {
        [] => Target::value_variants(),
        some => some,
    };
    let plans = plan::plan(targets, arguments.seconds, seed);
    println!("the plan of --seed {seed} --seconds {}:", arguments.seconds);
    plans.iter().for_each(|plan| print!("{plan}"));
    if arguments.plan {
        return Ok(true);
    }
    let testbed = bed::testbed(arguments.install);
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for plan in &plans {
        println!("\n{}", plan.target.name());
        if let Err(error) = run::run(plan, &testbed, seed, arguments.broken, &mut rows, show).await {
            println!("     NOT RUN: {error:#}");
            // The others can still be tested.
            failures.push(format!("{}, not run to its end: {error:#}", plan.target.name()));
        }
    }
    println!("\n{}", report::table(&rows));
    for row in &rows {
        let of =
            |what| format!("{}, phase {}, {}: {what}", row.target.name(), row.phase.number, row.phase.fault);
        failures.extend(row.violations().into_iter().map(of));
    }
    if let Some(file) = &arguments.report {
        let text = serde_json::to_string_pretty(&report::json(seed, arguments.seconds, &rows, &failures))?;
        std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let calls: u64 = rows.iter().map(|row| row.checked.calls).sum();
    println!("\n{} phases, {calls} calls, {} violations (--seed {seed})", rows.len(), failures.len());
    failures.iter().for_each(|failure| println!("- {failure}"));
    Ok(failures.is_empty())
}

/// Prints a row as soon as it is known.
fn show(row: &Row) {
    let checked = &row.checked;
    let recovery = checked.recovery.map_or("never".to_owned(), report::seconds);
    println!(
        "{:3}  {:16} lasted {}, {} losses, {} calls, {} errors, {} admitted of {}, slowest {}, recovered after {recovery}, {:+} tasks, \
         {:+} KiB",
        row.phase.number,
        row.phase.fault,
        report::seconds(row.lasted),
        row.losses,
        checked.calls,
        checked.errors.values().sum::<u64>() + checked.degraded,
        checked.admitted,
        checked.allowed,
        report::seconds(checked.slowest),
        row.tasks,
        row.kibibytes,
    );
    row.violations().iter().for_each(|violation| println!("     VIOLATION: {violation}"));
}
