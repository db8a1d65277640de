//! Decisions a second and the time of one, over each protocol: `ratelimit-server` beside `throttlecrab-server`, if that is
//! installed, and with Redis as the store beside a client of Redis that does no more than count.
//!
//! `cargo build --release -p ratelimit-server && cargo run --release -p ratelimit-server-bench`
#![allow(clippy::disallowed_methods, reason = "measures how long calls take")]

mod contestants;
mod grpc;
mod load;
mod wire;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use comfy_table::{Table, presets};

use crate::contestants::Contestant;
use crate::load::Measured;

/// What is measured.
#[derive(Parser)]
struct Arguments {
    /// The program of ratelimit-server.
    #[arg(long, default_value = "target/release/ratelimit-server")]
    server: PathBuf,
    /// The program of throttlecrab-server (`cargo install throttlecrab-server`); left out if there is none.
    #[arg(long)]
    throttlecrab: Option<PathBuf>,
    /// Only what is asked over these: `HTTP`, `Redis`, `gRPC`, `Envoy`; all by default.
    #[arg(long, value_delimiter = ',')]
    protocols: Vec<String>,
    /// How many connections are open.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// How many requests of a connection are on their way at once, in turn.
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    depths: Vec<usize>,
    /// The seconds of one measurement.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// How often each is measured, in turn with the others.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let server = arguments.server.canonicalize().with_context(|| {
        format!("{}: build it with `cargo build --release -p ratelimit-server`", arguments.server.display())
    })?;
    let throttlecrab = arguments.throttlecrab.as_ref().map(|program| program.canonicalize()).transpose()?;
    let mut contestants = Contestant::all(&server, throttlecrab.as_deref()).await?;
    let asked = &arguments.protocols;
    contestants.retain(|one| asked.is_empty() || asked.iter().any(|name| name == one.protocol));
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["protocol", "server", "store", "in flight", "decisions/s", "median", "p99"]);
    for &depth in &arguments.depths {
        let mut runs: Vec<Vec<Measured>> = contestants.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds {
            for (contestant, runs) in contestants.iter().zip(&mut runs) {
                let time = Duration::from_secs(arguments.seconds);
                let measured = contestant.measure(arguments.connections, depth, time).await;
                let measured =
                    measured.with_context(|| format!("{} over {}", contestant.name, contestant.protocol));
                runs.push(measured?);
            }
        }
        for (contestant, mut runs) in contestants.iter().zip(runs) {
            runs.sort_by_key(|run| run.decisions);
            let middle = &runs[runs.len() / 2];
            table.add_row([
                contestant.protocol.to_owned(),
                contestant.name.to_owned(),
                contestant.store.to_owned(),
                format!("{} x {depth}", arguments.connections),
                (middle.decisions / arguments.seconds).to_string(),
                format!("{} µs", middle.at(50)),
                format!("{} µs", middle.at(99)),
            ]);
        }
    }
    writeln!(io::stdout(), "{table}")?;
    Ok(())
}
