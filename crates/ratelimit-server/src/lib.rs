//! A server that checks rate limits for Envoy, gateways, and services in any language, under the policies of a file and on any
//! store. `docs/server.md` of the repository describes it; `ratelimit-server --help` lists its options.
//!
//! It has three doors: Envoy's rate limit service over gRPC, HTTP with JSON, and the Redis protocol. Behind them is the HTTP
//! layer (`ratelimit-tower`) with its policies, keys and fields; this crate adds no arithmetic. To the layer's metrics it adds:
//!
//! | metric | labels | counts |
//! |---|---|---|
//! | `ratelimit_server_unmatched_total` | `what` | what was admitted because nothing limits it: descriptors, and requests of unknown domains |
//! | `ratelimit_server_bad_requests_total` | `door` | requests that cannot be read, or ask for what there is not |
#![forbid(unsafe_code)]

pub mod args;
mod check_file;
mod checks;
mod descriptors;
mod entries;
pub mod grpc;
mod http;
mod life;
mod listen;
mod metrics;
mod receipt;
pub mod redis;
mod refusal;
mod rules;
mod store;
mod tls;
mod trace;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

pub use args::Args;
pub use life::{Addresses, Server};

/// Runs the command.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.check {
        Some(file) => check(file),
        None => run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check(file: &Path) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(check_file::describe(file)?.as_bytes())?)
}

fn run(args: Args) -> anyhow::Result<()> {
    // Failures of the store and changes of the file are logged here.
    trace::begin(args.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = life::signal()?;
        let server = Server::start(args).await?;
        writeln!(io::stdout(), "{}", server.greeting())?;
        ended.await;
        server.end().await
    });
    // A task that hangs does not keep the process.
    runtime.shutdown_background();
    ended
}
