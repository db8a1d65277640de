//! A gRPC service of tonic behind the layer. A client that calls too often gets `RESOURCE_EXHAUSTED`, and when to retry.
//!
//! The service is the standard health service, which is ready-made; a real program adds its own.
//!
//! `cargo run --bin grpc`, then send it some health checks with any client; `tests/service.rs` contains one.

use std::net::SocketAddr;

use clap::Parser;
use ratelimit_memory::{Limit, MemoryStore};
use ratelimit_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Answers a limited number of health checks per address.
#[derive(Parser)]
struct Args {
    /// The address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:8082")]
    listen: SocketAddr,
    /// How often each address may call
    #[arg(long, default_value = "10/min")]
    limit: Limit,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let limits = RateLimitLayer::in_process(MemoryStore::new(), args.limit).grpc();
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
