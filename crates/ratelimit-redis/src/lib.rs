//! Rate limits counted on Redis or Valkey: every algorithm, exact, in one script call.
//!
//! ```no_run
//! use ratelimit_redis::{Limit, RateLimiter, RedisStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1/").await?;
//! let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
//! if limiter.check("user:7").await?.allowed() {
//!     // go on
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//! A server that is compatible with Redis 5 or later (tested: Redis 6.2, 7.0 and 8.2, Valkey 9; not tested: KeyDB,
//! Dragonfly), with these commands:
//!
//! - `EVAL`, `EVALSHA`, `SCRIPT LOAD` and `UNLINK`;
//! - in scripts `GET`, `MGET`, `SET PX`, `GETRANGE`, `SETRANGE`, `STRLEN`, `PEXPIRE`, `PTTL` and `TIME`;
//! - with a database in the address also `SELECT`;
//! - on a cluster also `CLUSTER SLOTS`, `CLUSTER INFO` and `ASKING`;
//! - with sentinels `ROLE`, and `SENTINEL` on the sentinels;
//! - `SCAN` for [`RedisStore::scan_meters`].
//!
//! Scripts declare every key, so access lists (ACL) and clusters work. The eviction policy should be `noeviction` or
//! `volatile-ttl`: an evicted meter counts from zero.
//!
//! # What is stored
//! One string for each meter, under `rl:{namespace:key}scope`. All limits of one key are in one slot of a cluster. A meter
//! expires once it has become irrelevant and [`RedisConfig::clock_slack`] has passed.
//!
//! | meter | size of the value in bytes |
//! |---|---|
//! | fixed window | 27 |
//! | sliding-window counter | 35 |
//! | segmented window of p segments | 35 + 8p |
//! | token bucket, leaky bucket | 25 |
//! | sliding log | 17, plus 8 to 9 for each unit |
//!
//! A bucket that was charged at several rates, because its limit has changed or differs between callers, has 9 bytes plus
//! 24 for each of up to 16 rates until it has drained. A log reserves space for 4 or more further units, up to its quota,
//! and shrinks only when less than a quarter of its space is in use.
//!
//! # What it promises
//! Decisions are exact to the nanosecond: the scripts compute with whole numbers. Where these are too large for Lua, a
//! script uses a rounded comparison only if the difference exceeds every rounding error.
//!
//! On one server, and on a primary watched by Sentinel, every slice (the claims of one request) is atomic. On a
//! [cluster](RedisStore#clusters) a slice is atomic if all of its keys are in one slot, as the keys of all limits of one
//! key always are. A slice over several slots is first checked on all of them, then charged, and given back if another
//! caller has taken one of its parts in between. If it has charged a limit with a queue, its turn stays taken if others have
//! queued behind it meanwhile.
//!
//! # When something fails
//! With more than 16 checks at once, checks are batched ([`RedisConfig::batch`]): while three calls are under way, further
//! checks wait and are sent together in the next call, in their order; each is decided separately. A check on an idle store
//! is sent immediately; on a busy server one script call decides up to 128 checks. On a cluster each node has its own
//! batches, and a check stays a script call of its own.
//!
//! Every call ends within [`RedisConfig::timeout`], with an answer or with an error that says whether it may have been
//! charged. A call that may have been charged is never sent again. Connecting and reading a cluster's slots may take longer
//! and continue in the background, so a store with a short timeout recovers. If the server has lost a script, the call
//! sends it again in full.
//!
//! The slots of a cluster are read again when a node fails or reports that a slot has moved, at most ten times a second.
//! The store follows slots that move, and switches to the replica that replaces a failed node. A frozen node does not delay
//! calls to the other nodes.
//!
//! [Sentinels](RedisStore#sentinels) are asked again for the primary when a call finds no connection, gets no answer in
//! time or reaches a replica, at most ten times a second. They are also asked once a second while the store is in use. So
//! the same store continues after a failover.
//!
//! With [one server](RedisStore::connect_with), failover is yours: point the host name, proxy or virtual address at the new
//! primary. The store closes the connection to a server that reports that it has become a replica, and the next call
//! resolves the name again.
//!
//! Replication is asynchronous: after a failover, charges that had not reached the replica are lost.
//!
//! # Your own connection
//! A store can share a connection or a pool that your program already has: [`RedisStore::with_connection`],
//! [`RedisStore::with_cluster_connection`] and, with the feature `deadpool`, `RedisStore::with_pool` and
//! `RedisStore::with_cluster_pool`. Each documents how connections are replaced, retried and timed out then.
//!
//! # Features
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone.
//! - `deadpool`: stores on pools of the crates `deadpool` 0.13 and `deadpool-redis` 0.23.
//! - `tls`: `rediss://`, `rediss+cluster://` and `rediss+sentinel://` addresses and client certificates, with rustls.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod decide;
mod error;
#[cfg(test)]
mod fuzz;
mod servers;
mod store;
mod wire;

pub use config::RedisConfig;
pub use ratelimit_core as core;
#[doc(inline)]
pub use ratelimit_core::prelude::*;
#[doc(inline)]
pub use ratelimit_core::store::Time;
pub use store::RedisStore;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
/// Compiles the examples of the guide.
#[cfg(all(doctest, feature = "deadpool"))]
#[doc = include_str!("../../../docs/redis.md")]
struct Guide;
