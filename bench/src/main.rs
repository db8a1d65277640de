//! `cargo xtask bench`: compares the limiters of this repository with others.
//!
//! Each contestant runs in its own child process, which is another instance of this program; see `child.rs`. The
//! measurements are listed in `family.rs` and implemented in `measure/`, the contestants are in `contestants/` and
//! `remote/`, and the goals in `goal.rs`.

mod child;
mod contestants;
mod family;
mod goal;
mod job;
mod keys;
mod machine;
mod measure;
mod page;
mod picture;
mod remote;
mod report;
mod run;
mod scale;
mod session;
mod stopwatch;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use ratelimit_testbed::{Settings, Testbed};

use crate::machine::Machine;
use crate::measure::instructions;
use crate::report::Report;
use crate::scale::Scale;

#[global_allocator]
static ALLOCATOR: measure::Counting = measure::Counting;

/// Compares the limiters of this repository with others.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", max_term_width = 100)]
struct Arguments {
    /// Families to measure; all by default.
    #[arg(value_name = "FAMILY")]
    families: Vec<String>,
    /// Measure less of everything, in a few minutes.
    #[arg(long)]
    quick: bool,
    /// Measure hardly anything: shows that everything works.
    #[arg(long, hide = true)]
    tiny: bool,
    /// Write all figures to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Draw a picture of each table into FOLDER.
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Write the results into docs/internals/benchmarks.md, and their pictures into docs/benchmarks.
    #[arg(long)]
    write_docs: bool,
    /// Install the Debian package of what is not available otherwise; implied by CI=true.
    #[arg(long)]
    install: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.as_slice() {
        [word, contestant, job] if word == child::WORD => child::serve(contestant, job),
        [word, contestant, allow, decisions] if word == instructions::WORD => {
            instructions::decide(contestant, allow, decisions)
        }
        _ => bench(&Arguments::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn scale(&self) -> &'static Scale {
        match self {
            Self { tiny: true, .. } => &scale::TINY,
            Self { quick: true, .. } => &scale::QUICK,
            _ => &scale::FULL,
        }
    }
}

fn bench(arguments: &Arguments) -> Result<()> {
    let known = family::names();
    for name in &arguments.families {
        ensure!(
            known.contains(&name.as_str()),
            "there is no family {name:?}; known are {}",
            known.join(", ")
        );
    }
    let scale = arguments.scale();
    let families = family::all(scale).into_iter();
    let is_asked =
        |name: &str| arguments.families.is_empty() || arguments.families.iter().any(|asked| asked == name);
    let mut report =
        Report { machine: Machine::look(), scale: scale.name, tables: Vec::new(), goals: Vec::new() };
    println!("{}\n", report.machine.lines().join("\n"));
    let mut settings = Settings::from_env();
    settings.install |= arguments.install;
    let testbed = Testbed::new(settings);
    let mut failures = Vec::new();
    for family in families.filter(|family| is_asked(family.name)) {
        for table in run::run(&family, &testbed, &mut failures) {
            println!("{} [{}]\n{}\n{}\n", table.title, table.name, table.caption(), table.text(false));
            report.tables.push(table);
        }
    }
    report.machine.load_after = machine::load();
    report.goals = goal::verdicts(&report.tables);
    report.goals.iter().for_each(|goal| println!("{}", goal.text));
    println!("load average after it: {}", report.machine.load_after);
    keep(arguments, &report)?;
    ensure!(failures.is_empty(), "these did not run:\n{}", failures.join("\n"));
    Ok(())
}

/// Writes the requested files.
fn keep(arguments: &Arguments, report: &Report) -> Result<()> {
    if let Some(file) = &arguments.report {
        report.write(file)?;
    }
    if arguments.write_docs {
        page::write(report)?;
    }
    let beside_the_page = arguments.write_docs.then(page::pictures);
    for folder in arguments.pictures.iter().chain(&beside_the_page) {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for table in &report.tables {
            picture::draw(table, &folder.join(format!("{}.svg", table.name)))?;
        }
    }
    Ok(())
}
