//! Another company's API: strict, and beyond your control.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use hyper::Uri;
use ratelimit_memory::{Limit, MemoryStore};
use ratelimit_tower::RateLimitLayer;
use tokio::net::TcpListener;

/// Serves it on a free port. Returns its address.
pub(crate) async fn serve() -> anyhow::Result<Uri> {
    let limits = RateLimitLayer::in_process(MemoryStore::new(), "10/s log".parse::<Limit>()?);
    let app: Router = Router::new().route("/", get(|| async { "something useful" })).layer(limits);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?).parse().context("an address makes a URL")?;
    tokio::spawn(async move {
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        if let Err(error) = axum::serve(listener, app).await {
            eprintln!("the API has ended: {error}");
        }
    });
    Ok(url)
}
