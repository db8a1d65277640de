//! Rate limits counted on PostgreSQL: every algorithm, exact, in one statement.
//!
//! ```no_run
//! use ratelimit_postgres::{Limit, PostgresStore, RateLimiter};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::connect("postgres://app:secret@db.internal/app").await?;
//! let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
//! if limiter.check("user:7").await?.allowed() {
//!     // go on
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//! PostgreSQL 14 or later (tested on 15 to 18; 14 is not tested), a schema for a table and some functions, and
//! `READ COMMITTED`, which is the server's default. No extension.
//!
//! # Connections
//! The store connects over TCP, a Unix socket or TLS, directly or through PgBouncer in any of its modes, or uses your own
//! pool: see [`PostgresConfig`] and [`PostgresStore::with_pool`]. On its own connections it prepares statements and sets
//! time limits. Behind a pooler, which it detects, and on your own pool each call is one simple query, which leaves nothing
//! on the connection.
//!
//! # Schema
//! [`PostgresStore::migrate`] creates the table and the functions. Several processes may run it concurrently, and it does
//! nothing if it has been run by a program with this version of the crate or a newer one. [`PostgresStore::connect`] runs it,
//! and a [lazy](PostgresStore::lazy) store at its first connection, unless [`PostgresConfig::migrate`] is off. To use your own migrations, take
//! the SQL, and run it again when the version of this crate changes:
//!
//! ```
//! use ratelimit_postgres::PostgresConfig;
//!
//! let script = PostgresConfig::default().migration()?;
//! assert!(script.contains("CREATE UNLOGGED TABLE IF NOT EXISTS"));
//! # Ok::<(), ratelimit_core::StoreError>(())
//! ```
//!
//! The user that migrates must own the schema or be allowed to create one. A user that only counts needs `USAGE` on the
//! schema and `SELECT`, `INSERT`, `UPDATE` and `DELETE` on the table.
//!
//! # What is stored
//! One row for each meter: its name, 8 bytes for each number of its state, and about 80 bytes of overhead.
//!
//! | meter | numbers |
//! |---|---|
//! | fixed window | 2 |
//! | sliding-window counter | 3 |
//! | segmented window of p segments | p + 2 |
//! | token bucket, leaky bucket | 3 |
//! | sliding log | one for each unit |
//!
//! A bucket that was charged at several rates, because its limit has changed or differs between callers, has one number
//! plus three for each of up to 16 rates until it has drained.
//!
//! Each charge rewrites the row, so keep logs of thousands of units in another store. Names longer than 200 bytes are
//! stored as their SHA-256.
//!
//! # What a crash loses
//! The table is [unlogged](Logged) unless you configure otherwise: it is not written to the write-ahead log and not
//! replicated. After a crash of the server, and on a standby that is promoted, all meters start from zero; a clean restart
//! loses nothing. Lost units are admitted again: a limit can be exceeded once, by at most its own size. With
//! [`Logged::Logged`] a crash loses no charge that was answered; each charge then waits for the disk. If
//! `synchronous_commit` is off, charges do not wait, and a crash loses the latest ones.
//!
//! # Round trips
//! A slice (the claims of one request), or a batch of slices, is one statement. This is so from the first call on a
//! connection: statements are prepared when the connection is made, or not at all.
//!
//! By the caller's clock, the statement first writes the charges of windows and buckets that certainly fit, without reading
//! them before. It reads all others without locks, and ends there if it refuses them: it refuses a meter that is used up
//! without waiting for other transactions. Then it charges what fits. It locks rows in the order of their names, so that no
//! two calls deadlock.
//!
//! With more than four concurrent calls, a call that arrives while statements are under way waits, and shares the next
//! statement with the other waiting calls. If another process changes a meter between the read and the charge of a
//! statement, that meter's claims are decided in a second statement, which locks the row first. A statement that the server
//! rolls back because of concurrent ones is tried up to four times, within the timeout.
//!
//! # Promises
//! Every slice is decided exactly, to the nanosecond, with integer arithmetic.
//!
//! # Pruning
//! Rows of expired meters are deleted in the background, a few blocks of the table at a time, skipping rows that are in use
//! ([`PostgresConfig::prune_every`]). Autovacuum reclaims the space; the table has settings for that.
//!
//! # Clock
//! The caller's clock decides, or with [`Time::Server`] the server's, read in the statement itself. The time at which
//! a row expires is always computed with the server's clock from the remaining time.
//!
//! # Features
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone.
//! - `tls`: encrypted connections with rustls. The store trusts the machine's authorities and that of `sslrootcert`.
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

pub use config::{Logged, PostgresConfig};
pub use ratelimit_core as core;
#[doc(inline)]
pub use ratelimit_core::prelude::*;
#[doc(inline)]
pub use ratelimit_core::store::Time;
pub use store::PostgresStore;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/postgres.md")]
struct Page;
