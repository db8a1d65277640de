//! A plain hyper service behind the layer: no router, no framework.
//!
//! `cargo run --bin hyper`, then `curl -i http://127.0.0.1:8081/` a few times.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ratelimit_memory::{Limit, MemoryStore};
use ratelimit_tower::{PeerAddress, RateLimitLayer};
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceExt as _};

/// Says hello to a limited number of requests per address.
#[derive(Parser)]
struct Args {
    /// The address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// How often each address may send a request
    #[arg(long, default_value = "10/min")]
    limit: Limit,
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let limits = RateLimitLayer::in_process(MemoryStore::new(), args.limit);
    let limited = limits.layer(tower::service_fn(hello));
    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (connection, peer) = listener.accept().await?;
        let limited = limited.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            // hyper does not know the peer's address; the layer counts by this extension.
            request.extensions_mut().insert(PeerAddress(peer.ip()));
            limited.clone().oneshot(request)
        });
        tokio::spawn(async move {
            if let Err(error) =
                http1::Builder::new().serve_connection(TokioIo::new(connection), service).await
            {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
