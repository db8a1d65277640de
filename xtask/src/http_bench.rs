//! `cargo xtask http-bench`: the cost of the HTTP layer, compared with the bare service and with tower_governor.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::pair::Pairs;
use crate::workspace::{cargo, target};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pairs: Pairs,
}

/// The program's names for the services, and their descriptions.
const CONTESTANTS: [(&str, &str); 11] = [
    ("bare", "no limiter"),
    ("empty", "a layer that does nothing"),
    ("fields", "no limiter, but two fields as those of ratelimit-tower, always the same"),
    ("ours", "ratelimit-tower, as by default: with fields"),
    ("ours-silent", "ratelimit-tower without fields"),
    ("ours-around", "ratelimit-tower, as by default, around the router"),
    ("ours-silent-around", "ratelimit-tower without fields, around the router"),
    ("governor", "tower_governor, as by default: without fields"),
    ("governor-headers", "tower_governor with fields"),
    ("governor-around", "tower_governor, as by default, around the router"),
    ("governor-headers-around", "tower_governor with fields, around the router"),
];

/// Ratios of the first to the second, and the goals of this project.
const PAIRS: [(&str, &str, Option<f64>); 12] = [
    ("ours", "bare", Some(0.97)),
    ("ours-around", "bare", Some(0.97)),
    ("ours-silent", "bare", Some(0.97)),
    ("ours-silent-around", "bare", Some(0.97)),
    ("governor", "bare", None),
    ("governor-headers", "bare", None),
    ("empty", "bare", None),
    ("fields", "bare", None),
    ("ours", "governor-headers", Some(1.0)),
    ("ours-silent", "governor", Some(1.0)),
    ("ours-around", "governor-headers-around", Some(1.0)),
    ("ours-silent-around", "governor-around", Some(1.0)),
];

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let pairs = &arguments.pairs;
    pairs.find_wrk(&tokio::runtime::Builder::new_current_thread().enable_all().build()?)?;
    let built = cargo().args(["build", "--release", "--package", "ratelimit-http-bench"]).status()?;
    ensure!(built.success(), "ratelimit-http-bench was not built");
    for (name, what) in CONTESTANTS {
        println!("{name:24} {what}");
    }
    println!();
    pairs.print_headings();
    for (first, second, goal) in PAIRS {
        let [one, other] = [first, second].map(|name| {
            let mut program = Command::new(program());
            program.args(["serve", name]);
            program
        });
        pairs.measure_anew(&format!("{first} / {second}"), [&one, &other], goal)?;
    }
    print_calls("called without a network", &["calls"])?;
    print_calls(
        "the same, others' code and data run through the caches before each call",
        &["calls", "--cold"],
    )
}

/// Calls the services without a network and prints the time that their layers take.
fn print_calls(title: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program()).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let median = |wanted: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(' '))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let bare = median("bare").context("the bare service was not measured")?;
    println!("\n{title}, nanoseconds for each request\n");
    println!("{:24} {:>8} {:>17} {:>11}", "service", "median", "least..most", "beyond bare");
    for line in text.lines() {
        if let [name, median, least, most] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let beyond = median.parse::<f64>()? - bare;
            println!("{name:24} {median:>8} {least:>8}..{most:<7} {beyond:>11.0}");
        }
    }
    Ok(())
}

fn program() -> PathBuf {
    target().join("release/ratelimit-http-bench")
}
