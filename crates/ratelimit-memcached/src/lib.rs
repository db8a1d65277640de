//! Rate limits counted on Memcached: every algorithm, never over the limit, windows in one round trip.
//!
//! ```no_run
//! use ratelimit_memcached::MemcachedStore;
//! use ratelimit_memcached::core::{Limit, RateLimiter};
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
//! Memcached 1.6.13 or later (it speaks the meta commands `mg`, `ms`, `ma` and `md`), over TCP, without TLS or a log-in. The
//! server should have memory enough that it does not evict: see below.
//!
//! # What it promises
//! - Never more is admitted than a limit allows, from however many processes. Under contention a claim may be refused that
//!   would have fitted ([`Decisions::Conservative`](ratelimit_core::Decisions::Conservative)): a window counts what others have
//!   reserved and are about to take back. Once they are quiet, nothing of that is left. Claims that do not run into each other
//!   are decided exactly, to the nanosecond.
//!
//!   How many fewer, measured with 64 tasks in two processes on one key, a limit of 200, and 200 rounds for each meter: with
//!   claims of one unit none, in any of 2,800 rounds. With claims of 1 to 9 units 1.3 to 2.7 fewer on average and 8 at worst on windows (a
//!   large claim that is about to be refused keeps out a small one), none on buckets and logs. `RATELIMIT_ROUNDS=200 cargo test --release
//!   -p ratelimit-memcached --test processes -- --nocapture` measures it.
//! - A slice of several limits or keys is admitted whole or not at all, also over several servers. What was reserved is given
//!   back, also if the caller drops the future. If the connection breaks while units are reserved or given back, they stay
//!   counted until their window has passed: the error is then on the side of refusing.
//! - A meter is stored once, on one of the servers. If that one dies, its meters give errors until it is back, and count from
//!   zero then.
//!
//! # Trips
//! A trip is one request and one response, all commands of a slice in one batch; with several servers, one to each at the same time.
//!
//! | meter | admitted | refused | peeked at |
//! |---|---|---|---|
//! | windows | 1 | 2, then 1 until there is room | 1 |
//! | bucket, log | 2 | 1 | 1 |
//!
//! The second trip of a refused claim gives back what it had reserved. Until the instant at which it was told to come
//! again, further claims only look at first, so that they neither write nor keep others out; if they fit all the same,
//! because something was given back, they take 2 trips. A refund takes 1 trip on a window and 2 on a bucket or log. A reset
//! takes 1, or 2 on a window that was reset before; claims and refunds on a window that was reset take one more until the
//! segments that were reset no longer count. A slice takes as many as its slowest claim. A bucket or log that another process
//! writes at the same moment takes 2 more, up to 16 times, and then is [`Contended`](ratelimit_core::ErrorKind::Contended).
//! [`check_many`](ratelimit_core::RateLimiter::check_many) takes no more trips than one request does for every 4,096 commands,
//! however often the requests name the same meter.
//!
//! # What is stored
//! Under `<prefix>!<name space>!<scope>!<key>`; a name that does not fit into 250 bytes is a digest instead.
//!
//! | meter | items | commands for a claim |
//! |---|---|---|
//! | fixed window | a counter for each window | 2 |
//! | sliding-window counter | a counter for each window | 3 |
//! | segmented window of p segments | a counter for each segment | 2 + p |
//! | token bucket, leaky bucket | one, 25 bytes | 2 |
//! | sliding log | one, 1 byte and 8 for each unit | 2 |
//!
//! A log is read and written as a whole; it has to fit into an item (1 MiB unless the server's `-I` says otherwise, so up to
//! about 130,000 units), and a larger one is refused. Items expire by themselves once they cannot matter any more and
//! [`MemcachedConfig::clock_slack`] has passed. An item that would have to outlive January 2038, when the protocol's dates
//! end, expires then.
//!
//! A reset of a window leaves a mark of 17 bytes in the place of each counter, which expires when the counter would have; the
//! units are counted under another name from then on. So a claim that had reserved before the reset takes nothing back from what
//! was counted after it.
//!
//! # What can be lost
//! Memcached keeps nothing on disk: after a restart everything counts from zero. So does a meter whose item the server evicts
//! for want of memory. Every claim also reads its counter, which keeps the counters in use from being evicted
//! before others; give the server memory enough that `evictions` stays at zero, and a server of its own. While a counter is
//! evicted, a claim that is just taking its units back may take them from the new one.
//!
//! # Clocks
//! Callers' clocks decide ([`Time::CallerUnordered`](ratelimit_core::Time::CallerUnordered)), and should be synchronised. A bucket
//! or log knows its newest charge, and decides late claims as of then. A window does not: a claim that is late by less than
//! a segment counts in the segment of its own time, without what the next one holds already. No segment ever holds more
//! than the limit, so callers whose clocks differ get at most what a fixed window gives at its boundary: twice the limit around
//! the instant at which a window begins.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod decide;
mod error;
mod finish;
mod hints;
mod keys;
mod lifetime;
mod optimistic;
mod queue;
mod refund;
mod reply;
mod reset;
mod servers;
mod slice;
mod space;
mod store;
mod window;
mod wire;

pub use config::MemcachedConfig;
pub use ratelimit_core as core;
pub use store::MemcachedStore;
