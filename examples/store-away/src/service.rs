//! The service: one route behind the limits, and the layers around its store.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::HeaderName;
use ratelimit_core::layers::{Divided, Fallback, Resilience, Timeout};
use ratelimit_core::{DynCounterStore, Limit, RateLimiter};
use ratelimit_memory::MemoryStore;
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_tower::{KeySource, Policies, Policy, RateLimitLayer};

/// The limit of each of the [`USERS`](crate::client::USERS).
pub(crate) const LIMIT: &str = "20/s";

/// How long a call to Redis may take.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);

/// How many instances divide the limit. One of them is measured.
pub(crate) const INSTANCES: u32 = 4;

/// What to do while the store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Closed,
    Open,
    Fallback,
    Breaker,
}

impl Choice {
    pub(crate) const ALL: [Self; 4] = [Self::Closed, Self::Open, Self::Fallback, Self::Breaker];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed: 503",
            Self::Open => "open",
            Self::Fallback => "fallback in memory",
            Self::Breaker => "fallback in memory and breaker",
        }
    }

    fn around(self, redis: RedisStore) -> Arc<dyn DynCounterStore> {
        match self {
            Self::Closed => Arc::new(Timeout::new(redis, TIMEOUT)),
            Self::Open => Arc::new(Fallback::open(Timeout::new(redis, TIMEOUT))),
            Self::Fallback => {
                let memory = Divided::new(MemoryStore::new(), INSTANCES);
                Arc::new(Fallback::new(Timeout::new(redis, TIMEOUT), memory))
            }
            Self::Breaker => {
                Arc::new(Resilience::new(redis).timeout(TIMEOUT).fallback(MemoryStore::new(), INSTANCES))
            }
        }
    }
}

pub(crate) fn router(choice: Choice, redis: &str) -> anyhow::Result<Router> {
    // The service also starts while Redis is down.
    let redis = RedisStore::lazy(RedisConfig::from_url(redis)?)?;
    let limiter = RateLimiter::without_limits(choice.around(redis));
    let source = KeySource::header(HeaderName::from_static("x-user"));
    let policies = Policies::new([Policy::new("user", source, LIMIT.parse::<Limit>()?)?])?;
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter, policies)))
}
