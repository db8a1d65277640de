//! A small HTTP API, limited per API key by plan and per client address.
//!
//! `cargo run --release --bin api` keeps the counts in memory; `--store redis://…` (or `memcached://…`,
//! `postgres://…`) shares them between instances.

mod plans;
mod routes;
mod store;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use ratelimit_core::RateLimiter;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::plans::Plans;

/// A small HTTP API whose clients are limited by plan and by address.
#[derive(Parser)]
struct Args {
    /// Where the counts are kept: `memory:`, `redis://[user:password@]host:port[/database]`,
    /// `memcached://host:port[,host:port]` or `postgres://user[:password]@host:port/database`
    #[arg(long, default_value = "memory:")]
    store: String,
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let plans = Plans::new()?;
    let store = store::open(&args.store).await?;
    let limiter = RateLimiter::new(store, plans.address.clone()).with_namespace("api");
    let listener = TcpListener::bind(args.listen).await.with_context(|| {
        format!("cannot listen on {}: is another instance running? choose another with --listen", args.listen)
    })?;
    let ended = ended()?;
    greet(listener.local_addr()?, &limiter)?;
    let app = routes::router(limiter, plans).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).with_graceful_shutdown(ended).await?;
    writeln!(io::stdout(), "stopped")?;
    Ok(())
}

/// Completes on Ctrl-C, or when the process is asked to end; from now on neither ends it at once.
fn ended() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn greet(address: SocketAddr, limiter: &RateLimiter<store::Store>) -> io::Result<()> {
    let key = plans::FREE_KEY;
    writeln!(
        io::stdout(),
        "listening on http://{address}, counting in {store:?}

try it; the plan of this key is {plan}:
  curl -i -H 'x-api-key: {key}' http://{address}/
  curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'x-api-key: {key}' 'http://{address}/?[1-10]'
  curl -i -H 'x-api-key: {key}' http://{address}/

Ctrl-C ends it",
        store = limiter.store(),
        plan = plans::FREE,
    )
}
