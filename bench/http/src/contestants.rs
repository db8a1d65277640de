//! The services: one small router, bare or behind a limiter that never refuses.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use clap::ValueEnum;
use ratelimit_core::{Limit, RateLimiter};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{Headers, KeySource, Policies, Policy, RateLimitLayer, TrustedProxies};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
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
    /// Around the router, and without fields.
    OursSilentAround,
    /// tower_governor, as it is by default: without fields on answers.
    Governor,
    /// The same with its fields.
    GovernorHeaders,
}

/// More than any client can send here.
const LIMIT: &str = "1000000/s";

impl Contestant {
    /// The layer that belongs around the router, if there is one.
    pub(crate) fn around(self) -> anyhow::Result<Option<MemoryLayer>> {
        match self {
            Self::OursAround => layer().map(Some),
            Self::OursSilentAround => silent_layer().map(Some),
            _ => Ok(None),
        }
    }

    /// The router behind what belongs inside of it.
    pub(crate) fn router(self) -> anyhow::Result<Router> {
        let app = Router::new().route("/", get(|| async { "hello" }));
        let app = match self {
            Self::Bare | Self::OursAround | Self::OursSilentAround => app,
            Self::Empty => app.layer(tower::util::MapRequestLayer::new(|request: Request| request)),
            Self::Ours => app.layer(layer()?),
            Self::OursSilent => app.layer(silent_layer()?),
            Self::Governor => {
                let mut builder = GovernorConfigBuilder::default();
                let config = builder.period(Duration::from_micros(1)).burst_size(1_000_000).finish();
                app.layer(GovernorLayer::new(Arc::new(config.context("a bad configuration")?)))
            }
            Self::GovernorHeaders => {
                let mut builder = GovernorConfigBuilder::default();
                let builder = builder.period(Duration::from_micros(1)).burst_size(1_000_000);
                let config = builder.use_headers().finish().context("a bad configuration")?;
                app.layer(GovernorLayer::new(Arc::new(config)))
            }
        };
        // As axum does before it serves: without it each call would make all layers anew.
        Ok(app.with_state(()))
    }
}

type MemoryLayer = RateLimitLayer<MemoryStore>;

/// The layer of this repository, as it is by default.
fn layer() -> anyhow::Result<MemoryLayer> {
    Ok(RateLimitLayer::in_process(RateLimiter::new(MemoryStore::new(), LIMIT.parse::<Limit>()?)))
}

/// The same without fields.
fn silent_layer() -> anyhow::Result<MemoryLayer> {
    let by_address = KeySource::client_address(TrustedProxies::none());
    let policy = Policy::new("address", by_address, LIMIT.parse::<Limit>()?)?;
    Ok(layer()?.with_policies(Policies::new([policy])?.headers(Headers::of([]))))
}
