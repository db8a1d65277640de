//! A small axum service, without a limiter or behind one that never refuses, for `cargo xtask http-bench`.

mod calls;
mod contestants;
mod others;

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use axum::ServiceExt as _;
use axum::extract::Request;
use axum::response::Response;
use clap::{Parser, Subcommand, ValueEnum as _};
use tokio::net::TcpListener;
use tower::{Layer as _, Service};

use crate::contestants::{Around, Contestant};

/// A small service for measurements.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve: print the address, and end with stdin.
    Serve {
        /// The limiter in front of the service.
        contestant: Contestant,
        /// The number of serving threads.
        #[arg(long, default_value_t = 1)]
        threads: usize,
    },
    /// Call the services in turn without a network, and print the nanoseconds per call: median, minimum, maximum.
    Calls {
        /// The services to call; all by default.
        contestants: Vec<Contestant>,
        /// The number of measurements of each service.
        #[arg(long, default_value_t = 801)]
        rounds: usize,
        /// Evict code and data from the caches before each call, and measure each call separately.
        #[arg(long)]
        cold: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Calls { contestants, rounds, cold } if contestants.is_empty() => {
            calls::run(Contestant::value_variants(), rounds, cold)
        }
        Command::Calls { contestants, rounds, cold } => calls::run(&contestants, rounds, cold),
        Command::Serve { contestant, threads } => {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(threads).enable_all().build()?;
            std::thread::spawn(|| {
                // The parent process holds the other end, and does not write.
                _ = io::stdin().read(&mut [0]);
                std::process::exit(0);
            });
            runtime.block_on(serve(contestant))
        }
    }
}

async fn serve(contestant: Contestant) -> anyhow::Result<()> {
    let app = contestant.router()?;
    match contestant.around()? {
        None => {
            let service = app.into_make_service_with_connect_info::<SocketAddr>();
            Ok(axum::serve(listener().await?, service).await?)
        }
        Some(Around::Ours(layer)) => serve_around(layer.layer(app)).await,
        Some(Around::Governor(layer)) => serve_around(layer.layer(app)).await,
        Some(Around::GovernorHeaders(layer)) => serve_around(layer.layer(app)).await,
    }
}

async fn serve_around<S>(service: S) -> anyhow::Result<()>
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let service = service.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener().await?, service).await?)
}

async fn listener() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    Ok(listener)
}
