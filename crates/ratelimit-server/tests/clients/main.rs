//! Real clients of a running server: which requests each of them admits and refuses, and what it says about them.

#[path = "../surroundings/mod.rs"]
mod surroundings;

mod envoy;
mod fastapi;
mod gateways;
mod node;
mod python;
mod redis_cli;

use surroundings::{PATIENT, RateLimitServer};

/// Five requests for each API key.
const FIVE: &str = "[[policies]]\nname = \"requests\"\nkey = \"api-key:x-api-key\"\nlimit = \"5/day log\"\n";

/// A server that counts in its memory.
async fn server() -> RateLimitServer {
    server_with(FIVE).await
}

/// The same with this configuration.
async fn server_with(configuration: &str) -> RateLimitServer {
    RateLimitServer::start(configuration, &["--timeout", PATIENT]).await
}
