//! The services: one small router, bare or behind a limiter that never refuses.

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
use ratelimit_core::{Limit, RateLimiter};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{Headers, KeySource, Policies, Policy, RateLimitLayer, TrustedProxies};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// Nothing.
    Bare,
    /// A layer that does nothing: what axum takes for any.
    Empty,
    /// No layer; the handler itself answers with two fields as long as ours: what it takes to send them.
    Fields,
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
    /// tower_governor around the router.
    GovernorAround,
    /// Around the router, and with its fields.
    GovernorHeadersAround,
}

/// A layer that belongs around the router.
pub(crate) enum Around {
    Ours(RateLimitLayer<MemoryStore>),
    Governor(Governor<NoOpMiddleware<QuantaInstant>>),
    GovernorHeaders(Governor<StateInformationMiddleware>),
}

type Governor<M> = GovernorLayer<PeerIpKeyExtractor, M, Body>;

/// More than any client can send here.
const LIMIT: &str = "1000000/s";

/// What ours sends under this limit.
const FIELDS: [(HeaderName, HeaderValue); 2] = [
    (HeaderName::from_static("ratelimit-policy"), HeaderValue::from_static("\"default\";q=1000000;w=1")),
    (HeaderName::from_static("ratelimit"), HeaderValue::from_static("\"default\";r=999999;t=1")),
];

impl Contestant {
    /// The layer that belongs around the router, if there is one.
    pub(crate) fn around(self) -> Result<Option<Around>> {
        Ok(Some(match self {
            Self::OursAround => Around::Ours(layer()?),
            Self::OursSilentAround => Around::Ours(silent_layer()?),
            Self::GovernorAround => Around::Governor(governor()?),
            Self::GovernorHeadersAround => Around::GovernorHeaders(governor_with_fields()?),
            _ => return Ok(None),
        }))
    }

    /// The router behind what belongs inside of it.
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
        // As axum does before it serves: without it each call would make all layers anew.
        Ok(app.with_state(()))
    }
}

/// The layer of this repository, as it is by default.
fn layer() -> Result<RateLimitLayer<MemoryStore>> {
    Ok(RateLimitLayer::in_process(RateLimiter::new(MemoryStore::new(), LIMIT.parse::<Limit>()?)))
}

/// The same without fields.
fn silent_layer() -> Result<RateLimitLayer<MemoryStore>> {
    let by_address = KeySource::client_address(TrustedProxies::none());
    let policy = Policy::new("address", by_address, LIMIT.parse::<Limit>()?)?;
    Ok(layer()?.with_policies(Policies::new([policy])?.headers(Headers::of([]))))
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
