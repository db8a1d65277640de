//! The services: one small router, without a limiter or behind one that never refuses.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::routing::get;
use clap::ValueEnum;
use governor::clock::QuantaInstant;
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use ratelimit_core::Limit;
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{Headers, KeySource, Policies, Policy, RateLimitLayer, TrustedProxies};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// Nothing.
    Bare,
    /// A layer that does nothing: the cost of any layer in axum.
    Empty,
    /// No layer. The handler itself sends two fields as long as ours: the cost of sending them.
    Fields,
    /// The layer of this repository, with its defaults.
    Ours,
    /// The same without response fields.
    OursSilent,
    /// The layer around the router instead of inside it, where axum boxes each layer.
    OursAround,
    /// Around the router, without response fields.
    OursSilentAround,
    /// tower_governor with its defaults: without response fields.
    Governor,
    /// The same with its response fields.
    GovernorHeaders,
    /// tower_governor around the router.
    GovernorAround,
    /// Around the router, with its response fields.
    GovernorHeadersAround,
}

/// A layer around the router.
pub(crate) enum Around {
    Ours(RateLimitLayer<MemoryStore>),
    Governor(Governor<NoOpMiddleware<QuantaInstant>>),
    GovernorHeaders(Governor<StateInformationMiddleware>),
}

type Governor<M> = GovernorLayer<PeerIpKeyExtractor, M, Body>;

/// More than any client can send.
const LIMIT: &str = "1000000/s";

/// The fields that our layer sends under this limit.
const FIELDS: [(HeaderName, HeaderValue); 2] = [
    (HeaderName::from_static("ratelimit-policy"), HeaderValue::from_static("\"default\";q=1000000;w=1")),
    (HeaderName::from_static("ratelimit"), HeaderValue::from_static("\"default\";r=999999;t=1")),
];

impl Contestant {
    /// The layer around the router, if any.
    pub(crate) fn around(self) -> Result<Option<Around>> {
        Ok(Some(match self {
            Self::OursAround => Around::Ours(layer()?),
            Self::OursSilentAround => Around::Ours(silent_layer()?),
            Self::GovernorAround => Around::Governor(governor()?),
            Self::GovernorHeadersAround => Around::GovernorHeaders(governor_with_fields()?),
            _ => return Ok(None),
        }))
    }

    /// The router with its inner layer.
    pub(crate) fn router(self) -> Result<Router> {
        let app = match self {
            Self::Fields => Router::new().route("/", get(|| async { (FIELDS, "hello") })),
            _ => Router::new().route("/", get(|| async { "hello" })),
        };
        let app = match self {
            Self::Empty => app.layer(tower::util::MapRequestLayer::new(|request: Request| request)),
            Self::Ours => app.layer(layer()?),
            Self::OursSilent => app.layer(silent_layer()?),
            Self::Governor => app.layer(governor()?),
            Self::GovernorHeaders => app.layer(governor_with_fields()?),
            Self::Bare
            | Self::Fields
            | Self::OursAround
            | Self::OursSilentAround
            | Self::GovernorAround
            | Self::GovernorHeadersAround => app,
        };
        // Axum does this before it serves. Without it each call would build all layers again.
        Ok(app.with_state(()))
    }
}

/// The layer of this repository, with its defaults.
fn layer() -> Result<RateLimitLayer<MemoryStore>> {
    Ok(RateLimitLayer::in_process(MemoryStore::new(), LIMIT.parse::<Limit>()?))
}

/// The same without response fields.
fn silent_layer() -> Result<RateLimitLayer<MemoryStore>> {
    let by_address = KeySource::client_address(TrustedProxies::none());
    let policy = Policy::new("address", by_address, LIMIT.parse::<Limit>()?)?;
    let policies = Policies::new([policy])?.headers(Headers::of([]));
    Ok(RateLimitLayer::in_process(MemoryStore::new(), policies))
}

fn governor() -> Result<Governor<NoOpMiddleware<QuantaInstant>>> {
    let mut builder = GovernorConfigBuilder::default();
    let config = builder.period(Duration::from_micros(1)).burst_size(1_000_000).finish();
    Ok(GovernorLayer::new(Arc::new(config.context("a bad configuration")?)))
}

fn governor_with_fields() -> Result<Governor<StateInformationMiddleware>> {
    let mut builder = GovernorConfigBuilder::default();
    let builder = builder.period(Duration::from_micros(1)).burst_size(1_000_000);
    let config = builder.use_headers().finish().context("a bad configuration")?;
    Ok(GovernorLayer::new(Arc::new(config)))
}
