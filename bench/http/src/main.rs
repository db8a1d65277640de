//! One small axum service, bare or behind a limiter that never refuses; prints its address, and ends with its stdin.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::Request;
use axum::routing::get;
use axum::{Router, ServiceExt};
use clap::{Parser, ValueEnum};
use ratelimit_core::{Limit, RateLimiter};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{Headers, KeySource, Policies, Policy, RateLimitLayer, TrustedProxies};
use tokio::net::TcpListener;
use tower::Layer as _;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// A small service to be measured.
#[derive(Parser)]
struct Arguments {
    /// What is in front of it.
    contestant: Contestant,
    /// Threads that serve.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Contestant {
    /// Nothing.
    Bare,
    /// A layer that does nothing: what axum takes for any.
    Empty,
    /// The layer of this repository, as it is by default.
    Ours,
    /// The same without fields on answers.
    OursSilent,
    /// The layer around the router instead of inside of it, where axum puts each layer into a box.
    OursAround,
    /// tower_governor, as it is by default: without fields on answers.
    Governor,
    /// The same with its fields.
    GovernorHeaders,
}

/// More than any client can send here.
const LIMIT: &str = "1000000/s";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(arguments.threads).enable_all().build()?;
    std::thread::spawn(|| {
        // Whoever started this holds the other end, and does not write.
        _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    runtime.block_on(serve(arguments.contestant))
}

async fn serve(contestant: Contestant) -> anyhow::Result<()> {
    let app = Router::new().route("/", get(|| async { "hello" }));
    let app = match contestant {
        Contestant::Bare => app,
        Contestant::Empty => app.layer(tower::util::MapRequestLayer::new(|request: Request| request)),
        Contestant::OursAround => return around(app).await,
        Contestant::Ours => app.layer(RateLimitLayer::in_process(limiter()?)),
        Contestant::OursSilent => app.layer(RateLimitLayer::in_process(limiter()?).with_policies(silent()?)),
        Contestant::Governor => {
            let mut builder = GovernorConfigBuilder::default();
            let config = builder.period(Duration::from_micros(1)).burst_size(1_000_000).finish();
            app.layer(GovernorLayer::new(Arc::new(config.context("a bad configuration")?)))
        }
        Contestant::GovernorHeaders => {
            let mut builder = GovernorConfigBuilder::default();
            let builder = builder.period(Duration::from_micros(1)).burst_size(1_000_000);
            let config = builder.use_headers().finish().context("a bad configuration")?;
            app.layer(GovernorLayer::new(Arc::new(config)))
        }
    };
    let listener = listener().await?;
    Ok(axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?)
}

async fn around(app: Router) -> anyhow::Result<()> {
    let service = RateLimitLayer::in_process(limiter()?).layer(app);
    let service = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(service);
    Ok(axum::serve(listener().await?, service).await?)
}

async fn listener() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    Ok(listener)
}

fn limiter() -> anyhow::Result<RateLimiter<MemoryStore>> {
    Ok(RateLimiter::new(MemoryStore::new(), LIMIT.parse::<Limit>()?))
}

fn silent() -> anyhow::Result<Policies> {
    let by_address = KeySource::client_address(TrustedProxies::none());
    let policy = Policy::new("address", by_address, LIMIT.parse::<Limit>()?)?;
    Ok(Policies::new([policy])?.headers(Headers::of([])))
}
