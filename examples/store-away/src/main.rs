//! What a service answers while its Redis is frozen or killed, for each choice: runs an HTTP service and clients, prints a
//! table, and draws a picture.
//!
//! `cargo run --release -p store-away`

mod client;
mod phases;
mod picture;
mod service;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use ratelimit_core::{Clock as _, SystemClock};
use ratelimit_testbed::{Redis, Server, Settings, Testbed, Way};
use tokio::net::TcpListener;

use crate::client::Answer;
use crate::phases::{PHASES, Phase, Run};
use crate::service::Choice;

/// Measures a service whose Redis goes away.
#[derive(Parser)]
struct Args {
    /// Clients, each of which sends a request, waits for the answer, and pauses for 10 ms
    #[arg(long, default_value_t = 32)]
    clients: u64,
    /// Where to draw the picture
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures/store-away.svg"))]
    picture: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut runs = Vec::new();
    for choice in Choice::ALL {
        eprintln!("{}", choice.name());
        runs.push(Run { choice, answers: measure(choice, args.clients).await? });
    }
    table::print(&runs);
    picture::draw(&args.picture, &runs)?;
    eprintln!("{}", args.picture.display());
    Ok(())
}

async fn measure(choice: Choice, clients: u64) -> anyhow::Result<Vec<Answer>> {
    // A server of its own, because it is killed.
    let settings = Settings { addresses: BTreeMap::new(), only: Some(Way::Process), ..Settings::from_env() };
    let redis = Testbed::new(settings).redis_with(Redis::default()).await?;
    let app = service::router(choice, redis.url())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    // Connections and code are warm when the measurement begins.
    client::run(address, clients, SystemClock::new().now() + Duration::from_secs(1)).await;
    let total = PHASES.iter().map(|(_, seconds)| seconds).sum();
    let until = SystemClock::new().now() + Duration::from_secs(total);
    let (answers, troubled) = tokio::join!(client::run(address, clients, until), trouble(&redis));
    serving.abort();
    troubled?;
    Ok(answers)
}

/// Leads the server through the phases.
async fn trouble(redis: &Server) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.tick().await;
    let mut before = Phase::Up;
    for (phase, seconds) in PHASES {
        match (before, phase) {
            (_, Phase::Frozen) => redis.freeze().await?,
            (_, Phase::Killed) => redis.kill().await?,
            (Phase::Frozen, Phase::Up) => redis.thaw().await?,
            (Phase::Killed, Phase::Up) => redis.start().await?,
            (Phase::Up, Phase::Up) => {}
        }
        before = phase;
        for _ in 0..seconds {
            ticks.tick().await;
        }
    }
    Ok(())
}
