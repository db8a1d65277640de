//! A small HTTP API, limited per API key by plan and per client address.
//!
//! `cargo run -p api` keeps the counts in memory. `cargo run -p api --features redis -- --store redis://…` shares them
//! between instances (`memcached` and `postgres` are features too); with `--counting` they need not ask the store for each
//! check. Limits and plans are in `api.toml`.

mod customers;
mod fleet;
mod routes;
mod servers;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use ratelimit_core::RateLimiter;
use ratelimit_tower::config::ConfigFile;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::fleet::{Counting, Member};

/// A small HTTP API whose clients are limited by plan and by address.
#[derive(Parser)]
struct Args {
    /// Where the counts are stored: `memory:`, `redis://[user:password@]host:port[/database]`,
    /// `memcached://host:port[,host:port]` or `postgres://user[:password]@host:port/database`, with options as the query:
    /// `redis://host?timeout=100ms`. A server needs the feature of its name: `cargo run -p api --features redis`
    #[arg(long, default_value = "memory:")]
    store: String,
    /// How several instances on one store count together
    #[arg(long, value_enum, default_value = "straight")]
    counting: Counting,
    /// How often instances that do not ask the store for each check exchange their counts, in milliseconds
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// The address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The limits and plans, in TOML or YAML
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/api.toml"))]
    config: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Failures of the store and changes of the file are logged here.
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> anyhow::Result<()> {
    servers::require(&args.store)?;
    let policies = ConfigFile::open(&args.config)?;
    let member = Arc::new(Member::open(&args.store, args.counting).await?);
    // The limits are those of the policies.
    let limiter = RateLimiter::without_limits(member.store()).with_namespace("api");
    let listener = TcpListener::bind(args.listen).await.with_context(|| {
        format!("cannot listen on {}: is another instance running? choose another with --listen", args.listen)
    })?;
    let mut ended = Box::pin(ended()?);
    let interval = Duration::from_millis(args.interval);
    let counting = tokio::spawn({
        let member = member.clone();
        async move { member.run(interval).await }
    });
    tokio::select! {
        () = member.joined(interval) => {}
        () = &mut ended => {
            counting.abort();
            return member.leave().await;
        }
    }
    greet(listener.local_addr()?, &args)?;
    let app = routes::router(limiter, &policies).into_make_service_with_connect_info::<SocketAddr>();
    let watching = tokio::spawn(async move { policies.watch(Duration::from_secs(1)).await });
    axum::serve(listener, app).with_graceful_shutdown(ended).await?;
    watching.abort();
    counting.abort();
    member.leave().await?;
    writeln!(io::stdout(), "stopped")?;
    Ok(())
}

/// Completes on Ctrl-C or SIGTERM, which from now on do not end the process immediately.
fn ended() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn greet(address: SocketAddr, args: &Args) -> io::Result<()> {
    let (key, config) = (customers::FREE_KEY, args.config.display());
    let place = servers::place(&args.store, args.counting);
    writeln!(
        io::stdout(),
        "listening on http://{address}
limits and plans are those of {config}; requests are counted {place}

try it; this key is on the free plan, ten requests a minute:
  curl -i -H 'x-api-key: {key}' http://{address}/
  curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'x-api-key: {key}' 'http://{address}/?[1-10]'
  curl -i -H 'x-api-key: {key}' http://{address}/

Ctrl-C ends it"
    )
}
