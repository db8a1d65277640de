//! Opens the store that a URL names, so that a program's configuration decides where its limits are counted.
//!
//! ```
//! use ratelimit_stores::{Limit, RateLimiter};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url = std::env::var("RATE_LIMITS").unwrap_or("memory:".to_owned());
//! let store = ratelimit_stores::connect(&url).await?;
//! let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
//! assert!(limiter.check("user:7").await?.allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # Addresses
//!
//! | address | store | options |
//! |---|---|---|
//! | `memory:` | this process | [`MemoryConfig::from_url`](ratelimit_memory::MemoryConfig::from_url) |
#![cfg_attr(
    feature = "redis",
    doc = "| `redis://host:6379`, `valkey://host:6379`, `rediss://` with TLS, `redis+unix:///path` | one Redis or Valkey server | [`RedisConfig::from_url`](ratelimit_redis::RedisConfig::from_url) |",
    doc = "| `redis+sentinel://host-1,host-2/name`, `rediss+sentinel://` with TLS | the primary that sentinels watch | the same |",
    doc = "| `redis+cluster://host-1,host-2`, `rediss+cluster://` with TLS | Redis Cluster | the same |"
)]
#![cfg_attr(
    feature = "memcached",
    doc = "| `memcached://host-1,host-2`, `memcacheds://` with TLS, `memcached+unix:///path` | Memcached | [`MemcachedConfig::from_url`](ratelimit_memcached::MemcachedConfig::from_url) |"
)]
#![cfg_attr(
    feature = "postgres",
    doc = "| `postgres://user@host/database` | PostgreSQL | [`PostgresConfig::from_url`](ratelimit_postgres::PostgresConfig::from_url) |"
)]
//! Options are the query of the URL: `redis://cache.internal/?timeout=100ms&prefix=api:`. An unknown option is an error
//! that lists the known ones. Use a store's own crate if your program already has a connection or a pool, or if you
//! want its type instead of a trait object.
//!
//! # Features
//! None is enabled by default.
//! - `redis`, `memcached`, `postgres`: the stores of these names.
//! - `tls`: addresses with TLS, such as `rediss://` and `memcacheds://`, and `sslmode=require` of `postgres://`, with rustls.
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

use std::sync::Arc;

use ratelimit_memory::{MemoryConfig, MemoryStore};

pub use ratelimit_core as core;
#[doc(inline)]
pub use ratelimit_core::prelude::*;

/// A store that is chosen at run time. It implements [`CounterStore`].
pub type Store = Arc<dyn DynCounterStore>;

/// Opens the store at `url`, and connects to its servers. [The crate's page](crate#addresses) lists the URLs.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] if there is no such store or option, or if its value is not valid. Other kinds if the
/// server does not answer or denies access. No error quotes the URL, which may contain a password.
pub async fn connect(url: &str) -> Result<Store, StoreError> {
    Ok(match Kind::of(url)? {
        Kind::Memory => Arc::new(MemoryStore::with_config(MemoryConfig::from_url(url)?)),
        #[cfg(feature = "redis")]
        Kind::Redis => Arc::new(ratelimit_redis::RedisStore::connect(url).await?),
        #[cfg(feature = "memcached")]
        Kind::Memcached => Arc::new(ratelimit_memcached::MemcachedStore::connect(url).await?),
        #[cfg(feature = "postgres")]
        Kind::Postgres => Arc::new(ratelimit_postgres::PostgresStore::connect(url).await?),
    })
}

/// Opens the store at `url`, which connects to its servers when a call needs them: for a program that has to start while
/// they are down. Until they answer, each call is an error, which a [fallback](ratelimit_core::layers::Resilience) replaces
/// by its decision.
///
/// On PostgreSQL it creates the table at its first connection, as [`connect`] does, unless the URL has `migrate=false`.
///
/// Must be called in a tokio runtime, except for `memory:`.
///
/// ```
/// use ratelimit_stores::core::layers::Resilience;
/// use ratelimit_stores::{Limit, RateLimiter};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = std::env::var("RATE_LIMITS").unwrap_or("memory:".to_owned());
/// // Four instances of the service run. While the store is down, each admits a quarter.
/// let store = Resilience::new(ratelimit_stores::lazy(&url)?).fallback(ratelimit_stores::lazy("memory:")?, 4);
/// let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
/// assert!(limiter.check("user:7").await?.allowed());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Misconfigured`], as [`connect`].
pub fn lazy(url: &str) -> Result<Store, StoreError> {
    Ok(match Kind::of(url)? {
        Kind::Memory => Arc::new(MemoryStore::with_config(MemoryConfig::from_url(url)?)),
        #[cfg(feature = "redis")]
        Kind::Redis => {
            Arc::new(ratelimit_redis::RedisStore::lazy(ratelimit_redis::RedisConfig::from_url(url)?)?)
        }
        #[cfg(feature = "memcached")]
        Kind::Memcached => {
            let config = ratelimit_memcached::MemcachedConfig::from_url(url)?;
            Arc::new(ratelimit_memcached::MemcachedStore::lazy(config)?)
        }
        #[cfg(feature = "postgres")]
        Kind::Postgres => {
            let config = ratelimit_postgres::PostgresConfig::from_url(url)?;
            Arc::new(ratelimit_postgres::PostgresStore::lazy(config)?)
        }
    })
}

/// The kind of store that a URL names.
enum Kind {
    Memory,
    #[cfg(feature = "redis")]
    Redis,
    #[cfg(feature = "memcached")]
    Memcached,
    #[cfg(feature = "postgres")]
    Postgres,
}

impl Kind {
    fn of(url: &str) -> Result<Self, StoreError> {
        match url.split([':', '?']).next().unwrap_or(url) {
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "valkey+unix" | "unix"
            | "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" => Ok(Self::Redis),
            #[cfg(feature = "memcached")]
            "memcached" | "memcacheds" | "memcached+unix" => Ok(Self::Memcached),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Ok(Self::Postgres),
            _ => Err(StoreError::new(
                "store",
                ErrorKind::Misconfigured,
                format!("no store has this URL scheme; use {}", known()),
            )),
        }
    }
}

/// The URL schemes that this build supports, and how to enable the others.
fn known() -> String {
    let schemes = [
        (true, "memory", &["`memory:`"][..]),
        (cfg!(feature = "redis"), "redis", &["`redis://`", "`redis+cluster://`", "`redis+sentinel://`"]),
        (cfg!(feature = "memcached"), "memcached", &["`memcached://`"]),
        (cfg!(feature = "postgres"), "postgres", &["`postgres://`"]),
    ];
    let built = schemes.iter().filter(|(built, ..)| *built);
    let mut text = built.flat_map(|(_, _, schemes)| *schemes).copied().collect::<Vec<_>>().join(", ");
    let missing: Vec<_> =
        schemes.iter().filter(|(built, ..)| !built).map(|(_, feature, _)| *feature).collect();
    if !missing.is_empty() {
        text += &format!(" (this build does not have the features {})", missing.join(", "));
    }
    text
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
