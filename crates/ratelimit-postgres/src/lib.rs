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
//! PostgreSQL 14 or later, a schema to put a table and some functions in ([`PostgresStore::migrate`] does, or your own
//! migrations with the text of [`PostgresConfig::migration`]), and `READ COMMITTED`, which is the server's default. No
//! extension. Behind a pooler in transaction mode prepared statements must be allowed (pgbouncer 1.21 or later with
//! `max_prepared_statements`), and the store is made with [`PostgresStore::with_pool`].
//!
//! # What is stored
//! One row for each meter: its name, 8 bytes for each number of its state, and about 80 bytes of overhead. A window has one
//! number and one more for each of its segments, a bucket three, a sliding log one for each unit. Each charge writes the row
//! anew, so a log of thousands of units is better kept elsewhere. Names longer than 200 bytes are stored as their SHA-256.
//!
//! The table is [unlogged](Logged) unless the configuration says otherwise: it is not written ahead and not replicated, and
//! after a crash of the server all meters start from zero.
//!
//! # What it promises
//! Every slice is decided exactly, to the nanosecond, on whole numbers. A slice, or a batch of slices, is one statement and
//! one transaction: it reads without a lock, and if everything in it is refused that is all. Otherwise it locks the rows that it
//! charges in the order of their names, so that no two calls wait for each other. Under load, callers who wait for a
//! connection share one statement.
//!
//! Rows that have been forgotten are deleted in the background, a few blocks of the table at a time
//! ([`PostgresConfig::prune_every`]).
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
mod wire;

pub use config::{Logged, PostgresConfig, TimeSource};
pub use store::PostgresStore;
