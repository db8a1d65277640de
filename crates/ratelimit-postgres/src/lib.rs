//! Rate limits counted on PostgreSQL: every algorithm, exact, in one statement.
//!
//! ```no_run
//! use ratelimit_core::{Limit, RateLimiter};
//! use ratelimit_postgres::PostgresStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::connect("postgres://app:secret@db.internal/app").await?;
//! store.migrate().await?;
//! let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
//! if limiter.check("user:7").await?.allowed() {
//!     // go on
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//! PostgreSQL 14 or later (tested on 15), a schema to put a table and some functions in, and `READ COMMITTED`, which is the
//! server's default. No extension. Behind a pooler in transaction mode prepared statements must be allowed (pgbouncer 1.21
//! or later with `max_prepared_statements`), and the store is made with [`PostgresStore::with_pool`].
//!
//! # Schema
//! [`PostgresStore::migrate`] makes all of it, may be run by several processes at once, and does nothing if it has been run.
//! Those who run migrations of their own take the text, and run it again when the version of this crate changes:
//!
//! ```
//! use ratelimit_postgres::PostgresConfig;
//!
//! let script = PostgresConfig::default().migration()?;
//! assert!(script.contains("CREATE UNLOGGED TABLE IF NOT EXISTS"));
//! # Ok::<(), ratelimit_core::StoreError>(())
//! ```
//!
//! Whoever migrates must own the schema or be allowed to make one; whoever only counts needs `USAGE` on the schema and
//! `SELECT`, `INSERT`, `UPDATE` and `DELETE` on the table.
//!
//! # What is stored
//! One row for each meter: its name, 8 bytes for each number of its state, and about 80 bytes of overhead. A window has one
//! number and one more for each of its segments, a bucket three, a sliding log one for each unit. Each charge writes the row
//! anew, so a log of thousands of units is better kept elsewhere. Names longer than 200 bytes are stored as their SHA-256.
//!
//! # What a crash loses
//! The table is [unlogged](Logged) unless the configuration says otherwise: it is not written ahead and not replicated.
//! After a crash of the server, and on a standby that takes over, all meters start from zero; a clean restart loses nothing.
//! What was lost is admitted again: a limit can be exceeded once, by at most itself. [`Logged::Logged`] keeps every charge that
//! was answered, and each charge then waits for the disk, unless `synchronous_commit` is off.
//!
//! # Trips
//! A slice, or a batch of slices, is one statement and one transaction, from the first call of a connection on: statements are
//! prepared when it is made. It reads without a lock, and if everything in it is refused that is all: who is over the limit
//! waits for nobody. Otherwise rows are locked in the order of their names, so that no two calls wait for each other.
//!
//! Calls that arrive while statements are under way share the next one. If a statement finds that another process has changed
//! a meter between its look and its charge, that meter's claims are decided in a second statement, which takes the lock first.
//! What the server undoes because of others is tried up to four times, within the time limit.
//!
//! # Promises
//! Every slice is decided exactly, to the nanosecond, on whole numbers.
//!
//! # Pruning
//! Rows of meters that count no more are deleted in the background, a few blocks of the table at a time, and those that are in
//! use are left out ([`PostgresConfig::prune_every`]). Autovacuum makes the room free again; the table has settings for that.
//!
//! # Clock
//! The caller's clock decides, or with [`TimeSource::Server`] that of the server, read in the statement itself. When a row is
//! forgotten is always worked out by the server's clock from the time that is left.
//!
//! # Features
//! - `tls`: encrypted connections by rustls, with the machine's certificates.
#![forbid(unsafe_code)]

mod config;
mod error;
mod link;
mod prune;
mod queue;
mod schema;
mod store;
mod sure;
mod take;
mod wire;

pub use config::{Logged, PostgresConfig, TimeSource};
pub use store::PostgresStore;
