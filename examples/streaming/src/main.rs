//! Serves the API that streams tokens.
//!
//! `cargo run --bin streaming`, then
//! `curl -iN -H 'x-api-key: ann' -d 'What is a word?' 'http://127.0.0.1:8083/complete?max_tokens=1000'`, and
//! `curl -i -H 'x-api-key: ann' http://127.0.0.1:8083/` to see what remains. Interrupt the first one and look again.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use ratelimit_memory::{Limit, MemoryStore};
use tokio::net::TcpListener;

/// Streams tokens to a limited extent per API key.
#[derive(Parser)]
struct Args {
    /// The address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:8083")]
    listen: SocketAddr,
    /// How many tokens each API key may use
    #[arg(long, default_value = "2000/min")]
    limit: Limit,
    /// Milliseconds that the model needs for a token
    #[arg(long, default_value_t = 50)]
    token_millis: u64,
    /// Seconds after which a response that has not ended pays for what was sent by then; more than the longest answer takes
    #[arg(long, default_value_t = 60)]
    settle_within: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let within = Duration::from_secs(args.settle_within);
    let limits = streaming_example::limits(MemoryStore::new(), args.limit, within)?;
    let app = streaming_example::routes(Duration::from_millis(args.token_millis)).layer(limits);
    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
