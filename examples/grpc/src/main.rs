//! A gRPC service of tonic behind the layer: who calls too often is told `RESOURCE_EXHAUSTED`, and when to come again.
//!
//! The service is the standard one for health checks, which comes ready made; a real program puts its own beside it.
//!
//! `cargo run --bin grpc`, then ask it with any client for health checks, some times; `tests/service.rs` is one.

use std::net::SocketAddr;

use clap::Parser;
use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
use ratelimit_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Answers health checks, so often to each address.
#[derive(Parser)]
struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8082")]
    listen: SocketAddr,
    /// How often each address may call
    #[arg(long, default_value = "10/min")]
    limit: Limit,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let limits = RateLimitLayer::in_process(RateLimiter::new(MemoryStore::new(), args.limit)).grpc();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Server::builder()
        .layer(limits)
        .add_service(health)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}
