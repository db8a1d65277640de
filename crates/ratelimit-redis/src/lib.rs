//! Rate limits counted on Redis, Valkey or KeyDB: every algorithm, exact, in one script call.
//!
//! ```no_run
//! use ratelimit_redis::RedisStore;
//! use ratelimit_redis::core::{Limit, RateLimiter};
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
//! A server that speaks the language of Redis 5 or later: `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `UNLINK`, in scripts `GET`,
//! `MGET`, `SET PX`, `GETRANGE`, `SETRANGE`, `STRLEN`, `PEXPIRE` and `TIME`, and on a cluster `CLUSTER SLOTS` and
//! `CLUSTER INFO`.
//! Every key is declared, so an access list (ACL) or a cluster sees all of them. The eviction policy should be `noeviction`
//! or `volatile-ttl`: what is evicted counts from zero.
//!
//! # What is stored
//! One string for each meter, under `rl:{namespace:key}scope`. All limits of one key are in one slot of a cluster. A meter
//! expires by itself once it has become irrelevant and [`RedisConfig::clock_slack`] has passed.
//!
//! | meter | bytes of the value |
//! |---|---|
//! | fixed window | 27 |
//! | sliding-window counter | 35 |
//! | segmented window of p segments | 35 + 8p |
//! | token bucket, leaky bucket | 25 |
//! | sliding log | 17, and 8 to 9 for each unit |
//!
//! # What it promises
//! Decisions are exact to the nanosecond: the scripts compute with whole numbers only, longer ones in parts. On one server
//! every slice is atomic. On a [cluster](RedisStore::connect_cluster) a slice is atomic if all of its keys are in one slot,
//! as those of one key always are; over several slots all parts are asked first, then charged, and given back if one of
//! them has been taken by somebody else in between.
//!
//! # When something fails
//! Checks that come while two calls are under way wait for one of them and go together in the next, in their order, each decided
//! for itself ([`RedisConfig::batch`]): a check on an idle store goes at once, and a busy server runs one script for up to
//! 128 checks. On a cluster each check is a call of its own.
//!
//! Every call ends within [`RedisConfig::timeout`], with an answer or an error that says whether it may have been charged;
//! a call that may have been is never sent again. What takes longer than a call (dialling, asking a cluster who serves what)
//! goes on in the background, so a short time limit does not keep a store from recovering. Scripts that a server has
//! forgotten are sent along with the call.
//!
//! A cluster is asked again for its nodes whenever one of them fails or sends a call on, at most ten times a second. Slots
//! that move are followed, failed nodes are left for the replica that takes their place, and a node that is frozen
//! keeps nobody waiting who asks another.
//!
//! With one server a failover is the business of whoever runs it: let a name, a proxy or a virtual address lead to the new
//! primary. A server that says that it has become a replica is hung up on, and the next call looks up where the name leads.
//!
//! Replication is asynchronous: after a failover the charges that had not reached the replica are forgotten.
//!
//! # Features
//! - `tls`: `rediss://` addresses, by rustls.
#![forbid(unsafe_code)]

mod cluster;
mod config;
mod connection;
mod error;
mod fast;
mod flight;
mod keys;
mod link;
mod nodes;
mod script;
mod spread;
mod store;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod topology;
mod wire;

pub use config::{RedisConfig, TimeSource};
pub use ratelimit_core as core;
pub use store::RedisStore;
