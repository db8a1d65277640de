//! A client that waits for its turn before it calls another company's API, and so is rarely refused.
//!
//! `cargo run --bin outgoing` calls an API that allows ten calls per second and answers 429 above that. Several
//! instances of a program share their turns on a shared store: use `RedisStore` instead of `MemoryStore`.

mod api;

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Parser;
use http_body_util::Empty;
use hyper::header::RETRY_AFTER;
use hyper::{Response, StatusCode, Uri, body::Incoming};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use ratelimit_memory::{Acquire, Limit, MemoryStore, RateLimiter};

/// Calls an API as often as it allows.
#[derive(Parser)]
struct Args {
    /// How many calls to make
    #[arg(long, default_value_t = 20)]
    calls: u32,
    /// How often to call. A queue spaces the calls evenly; a little less than the API allows leaves room for network delays
    #[arg(long, default_value = "8/s queue")]
    limit: Limit,
}

/// The other company's API, as seen by this program.
struct Api {
    url: Uri,
    client: Client<HttpConnector, Empty<Bytes>>,
    turns: RateLimiter<MemoryStore>,
    refused: u32,
}

impl Api {
    /// Calls it when it is this call's turn. If the API refuses all the same, waits as long as it says.
    async fn call(&mut self) -> anyhow::Result<Response<Incoming>> {
        let in_time = Acquire::default().timeout(Duration::from_secs(30));
        loop {
            self.turns.acquire_with("their-api", in_time).await.context("no turn within 30 seconds")?;
            let response = self.client.get(self.url.clone()).await?;
            if response.status() != StatusCode::TOO_MANY_REQUESTS {
                return Ok(response);
            }
            self.refused += 1;
            let wait = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
            let Some(wait) = wait else { bail!("the API refused, and does not say for how long") };
            tokio::time::sleep(Duration::from_secs(wait)).await;
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let url = api::serve().await?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let turns = RateLimiter::new(MemoryStore::new(), args.limit);
    let mut api = Api { url, client, turns, refused: 0 };
    for call in 1..=args.calls {
        let response = api.call().await?;
        println!("call {call}: {}", response.status());
    }
    println!("{} calls, {} refused", args.calls, api.refused);
    Ok(())
}
