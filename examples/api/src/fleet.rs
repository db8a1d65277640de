//! How several instances count together on one store.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
#[cfg(feature = "postgres")]
use ratelimit_cluster::PostgresTransport;
#[cfg(feature = "redis")]
use ratelimit_cluster::RedisTransport;
#[cfg(any(feature = "postgres", feature = "redis"))]
use ratelimit_cluster::Replicated;
use ratelimit_cluster::{Leased, Synced};
use ratelimit_core::{Clock as _, SystemClock};
use ratelimit_stores::{Store, connect};

/// Instances with the same name form a fleet.
#[cfg(any(feature = "postgres", feature = "redis"))]
const CHANNEL: &str = "ratelimit-api";

/// The beginnings of addresses of a Redis or Valkey server.
#[cfg(feature = "redis")]
const REDIS: [&str; 4] = ["redis://", "rediss://", "valkey://", "valkeys://"];

/// How instances count together.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Counting {
    /// Each check asks the store
    Straight,
    /// Parts of the quota are claimed from the store in advance and spent here: never exceeds the limit
    Leased,
    /// Counted here, and merged with the store at each interval
    Synced,
    /// Counted here, and broadcast to the others at each interval through Redis or PostgreSQL: nothing is stored there
    Replicated,
}

/// An instance of a fleet.
pub(crate) enum Member {
    Straight(Store),
    Leased(Arc<Leased<Store>>),
    Synced(Arc<Synced<Store>>),
    #[cfg(feature = "redis")]
    ByRedis(Arc<Replicated<RedisTransport>>),
    #[cfg(feature = "postgres")]
    ByPostgres(Arc<Replicated<PostgresTransport>>),
}

impl Member {
    pub(crate) async fn open(url: &str, counting: Counting) -> anyhow::Result<Self> {
        Ok(match counting {
            Counting::Straight => Self::Straight(connect(url).await?),
            Counting::Leased => Self::Leased(Arc::new(Leased::new(connect(url).await?))),
            Counting::Synced => Self::Synced(Arc::new(Synced::new(connect(url).await?))),
            #[cfg(feature = "redis")]
            Counting::Replicated if REDIS.iter().any(|scheme| url.starts_with(scheme)) => {
                Self::ByRedis(Arc::new(Replicated::new(RedisTransport::connect(url, CHANNEL).await?)))
            }
            #[cfg(feature = "postgres")]
            Counting::Replicated if url.starts_with("postgres") => {
                Self::ByPostgres(Arc::new(Replicated::new(PostgresTransport::connect(url, CHANNEL).await?)))
            }
            Counting::Replicated => {
                bail!("instances broadcast through one server: use --store redis://… or postgres://…")
            }
        })
    }

    pub(crate) fn store(&self) -> Store {
        match self {
            Self::Straight(store) => store.clone(),
            Self::Leased(store) => store.clone(),
            Self::Synced(store) => store.clone(),
            #[cfg(feature = "redis")]
            Self::ByRedis(store) => store.clone(),
            #[cfg(feature = "postgres")]
            Self::ByPostgres(store) => store.clone(),
        }
    }

    /// Runs the background work of this way of counting. Never ends.
    pub(crate) async fn run(&self, interval: Duration) {
        let clock = SystemClock::new();
        match self {
            Self::Straight(_) => std::future::pending().await,
            Self::Leased(store) => store.run(clock, interval).await,
            Self::Synced(store) => store.run(clock, interval).await,
            #[cfg(feature = "redis")]
            Self::ByRedis(store) => store.run(clock, interval).await,
            #[cfg(feature = "postgres")]
            Self::ByPostgres(store) => store.run(clock, interval).await,
        }
    }

    /// Waits until this instance knows what the others count, for at most ten intervals: the channel may be unreachable.
    pub(crate) async fn joined(&self, interval: Duration) {
        let has_joined = || match self {
            Self::Straight(_) | Self::Leased(_) | Self::Synced(_) => true,
            #[cfg(feature = "redis")]
            Self::ByRedis(store) => store.has_joined(),
            #[cfg(feature = "postgres")]
            Self::ByPostgres(store) => store.has_joined(),
        };
        for _ in 0..100 {
            if has_joined() {
                break;
            }
            tokio::time::sleep(interval / 10).await;
        }
    }

    /// Returns or publishes what the other instances would miss.
    pub(crate) async fn leave(&self) -> anyhow::Result<()> {
        let now = SystemClock::new().now();
        match self {
            Self::Straight(_) => {}
            Self::Leased(store) => store.give_back_all(now).await?,
            Self::Synced(store) => store.sync(now).await?,
            #[cfg(feature = "redis")]
            Self::ByRedis(store) => store.leave(now).await?,
            #[cfg(feature = "postgres")]
            Self::ByPostgres(store) => store.leave(now).await?,
        }
        Ok(())
    }
}
