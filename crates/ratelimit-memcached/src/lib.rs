//! Rate limits counted on Memcached: every algorithm, never over the limit, windows in one round trip.
//!
//! ```no_run
//! use ratelimit_memcached::{Limit, MemcachedStore, RateLimiter};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemcachedStore::connect("memcached://cache-1:11211,cache-2:11211").await?;
//! let limiter = RateLimiter::new(store, "10000 per 15 minutes".parse::<Limit>()?);
//! if limiter.check("user:7").await?.allowed() {
//!     // go on
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//! Memcached 1.6.13 or later, for the meta commands `mg`, `ms`, `ma` and `md`, with enough memory to evict nothing (see
//! [what can be lost](#what-can-be-lost)).
//!
//! The store connects over TCP, over TLS with the feature `tls` (`memcacheds://`), or over a Unix socket
//! (`memcached+unix://`), and logs in where the server's option `-Y` requires it: see [`MemcachedConfig::from_url`]. SASL
//! is not supported: it belongs to the binary protocol, which has no meta commands. In the repository,
//! `docs/memcached.md` shows each kind of connection, and `docs/internals/memcached.md` what the documentation of hosted
//! services says.
//!
//! # What it promises
//! - The store never admits more than a limit allows, whatever the number of processes, with the exceptions below. Under
//!   contention it may refuse a
//!   claim that would have fitted ([`Decisions::Conservative`](ratelimit_core::store::Decisions::Conservative)): a claim on a
//!   window first adds its units and takes them back if it does not fit, and until then other claims count them. Claims
//!   that do not overlap are decided exactly, to the nanosecond.
//!
//!   How many fewer are admitted was measured with 64 tasks in two processes on one key, a limit of 200, and 200 rounds for
//!   each meter. With claims of one unit: none, in any of 2,800 rounds. With claims of 1 to 9 units: on windows 1.3 to 2.7
//!   fewer on average and 8 at worst (a large claim that is about to be refused displaces a small one), none on buckets and
//!   logs. `RATELIMIT_ROUNDS=200 cargo test --release -p ratelimit-memcached --test processes -- --nocapture` measures it.
//! - A slice of several limits or keys is admitted as a whole or not at all, even over several servers. Reserved units are
//!   given back, even if the caller drops the future. If the connection breaks while units are reserved or given back, they
//!   stay counted until their window has passed: the error is on the side of refusing.
//!
//!   There are two exceptions. First, suppose that a request charges two buckets, and fails on the second. If the first is
//!   reset and charged by others before the units are given back, the units of those others are given back instead, and as
//!   many too many are admitted. Second, if a request charges a limit with a queue and then fails on another limit, its turn
//!   stays taken if others have queued behind it meanwhile: too few are admitted.
//! - A reset of a window counts claims that it overtakes as made before it or after it. This does not hold for segments that
//!   are shorter than a round trip and the difference of the callers' clocks together, nor if several proxies spread the
//!   counters of one window over several servers: then such a claim may be admitted and not counted.
//! - Poll the future of a call until it is ready, or drop it. While you hold one that you do not poll, its reservations stay,
//!   and calls of this process on some other keys may wait for it until their time limit.
//! - A meter is stored once, on one of the servers: see [`Distribution`]. If that server dies, its meters return errors
//!   until it is back, and then count from zero. The other servers are not affected. Meters move only when you change the
//!   list of servers.
//!
//! # Round trips
//! One round trip sends all commands of a slice in one batch; with several servers, one to each of them concurrently.
//!
//! | meter | admitted | refused | peek |
//! |---|---|---|---|
//! | windows | 1 | 2, then 1 until there is room | 1 |
//! | bucket, log | 2 | 1 | 1 |
//!
//! The second round trip of a refused claim gives back what it had reserved. Until the instant at which it would fit,
//! further claims first only read, so that they neither write nor displace other callers. If they fit all the same, because
//! units were given back, they take 2 round trips.
//!
//! - A slice takes as many round trips as its slowest claim.
//! - A bucket or log that another process writes at the same moment is read and written again, which takes 2 more. After 16
//!   attempts the claim is [`Contended`](ratelimit_core::ErrorKind::Contended). Within a process, calls that charge the
//!   same bucket or log wait for each other, and are `Contended` if that takes longer than half of the timeout.
//! - A refund takes 1 on a window and 2 on a bucket or log.
//! - A reset takes 1, or 2 on a window that was reset before. Claims and refunds on a window that was reset take one more
//!   until the segments that were reset no longer count.
//! - [`check_many`](ratelimit_core::RateLimiter::check_many) takes as many round trips as one request for every 4,096
//!   commands, however often the requests name the same meter.
//!
//! # What is stored
//! The name of a meter is `<prefix>!<namespace>!<scope>!<key>`; one of more than 213 bytes is replaced by a digest. A
//! bucket or log is one item under this name. A counter of a window has the number of its segment in addition:
//! `<name>!<number>`.
//!
//! | meter | items | commands for a claim |
//! |---|---|---|
//! | fixed window | a counter for each window | 2 |
//! | sliding-window counter | a counter for each window | 3 |
//! | segmented window of p segments | a counter for each segment | 2 + p |
//! | token bucket, leaky bucket | one, 25 bytes | 2 |
//! | sliding log | one, 1 byte plus 8 for each unit | 2 |
//!
//! A bucket that was charged at several rates, because its limit has changed or differs between callers, has 9 bytes plus
//! 24 for each of up to 16 rates until it has drained.
//!
//! A log is read and written as a whole. It has to fit into an item (1 MiB by default, see the server's `-I`, so up to
//! about 130,000 units); a larger one is refused. Items expire when they are no longer relevant and
//! [`MemcachedConfig::clock_slack`] has passed. An item that would have to live beyond January 2038, when the protocol's
//! dates end, expires then.
//!
//! A reset of a window replaces the counters of the current and the neighbouring segments by a mark of 17 bytes, which
//! lives at least as long as the counter would have, and deletes older counters. From then on, units are counted under the
//! name of the counter with this mark. So a claim that had reserved before the reset takes nothing back from what was
//! counted after it.
//!
//! # What can be lost
//! Memcached stores nothing on disk: after a restart everything counts from zero. So does a meter whose item the server
//! evicts when it runs out of memory. Every claim also reads its counter, so that counters in use are not evicted before
//! others. Give the store its own server, with enough memory that `evictions` stays at zero. If a counter is evicted while
//! a claim is taking its units back, the claim may take them from the new counter.
//!
//! A server that is started with `-M` evicts nothing. When it is full, it deletes each bucket or log that it cannot
//! rewrite, so a key could use its limit again and again. Every server does the same with a log that outgrows an item
//! (`-I`). So connecting to a server with `-M`, or with items smaller than [`MemcachedConfig::max_item_size`], is an error
//! of the kind [`Misconfigured`](ratelimit_core::ErrorKind::Misconfigured). Through a pool of your own, or a proxy that
//! does not report the server's settings, the store cannot check them.
//!
//! # Clocks
//! Callers' clocks decide, so synchronise them. A bucket or log knows its newest charge. If a caller's clock is behind that instant, the claim is decided as of that instant.
//!
//! A window does not know its newest charge: a caller whose clock is still in the previous segment counts there, and
//! ignores what the newer segment contains already. No segment ever contains more than the limit, so callers whose clocks
//! differ get at most what a fixed window admits at its boundary: twice the limit around the instant at which a window
//! begins.
//!
//! # Through a proxy, or with the plain protocol
//! Twemproxy, and servers before 1.6, do not know the meta commands. With the feature `memcache` the store uses a
//! `deadpool` pool of clients of the crate `memcache` and sends only `gets`, `add`, `incr`, `decr`, `cas`, `replace` and
//! `delete`
#![cfg_attr(feature = "memcache", doc = "(see [`MemcachedStore::with_pool`]).")]
#![cfg_attr(not(feature = "memcache"), doc = "(`MemcachedStore::with_pool`).")]
//! It promises the same and counts in the same items, but takes a round trip for each command that writes, and another for
//! the reads: an admitted claim takes 2 if its item exists, and 4 otherwise.
//!
//! # Features
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone.
//! - `memcache`: stores on a pool of clients that know only the classic text protocol.
//! - `tls`: `memcacheds://` addresses, with rustls.
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

pub use config::MemcachedConfig;
pub use config::distribution::Distribution;
pub use ratelimit_core as core;
#[doc(inline)]
pub use ratelimit_core::prelude::*;
#[cfg(feature = "memcache")]
pub use servers::plain::{MemcacheManager, MemcachePool};
pub use store::MemcachedStore;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/memcached.md")]
struct Guide;
