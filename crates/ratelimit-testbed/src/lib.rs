//! Servers for tests and trials, each obtained the same way.
//!
//! The first way that works is taken:
//!
//! 1. **An address in the environment** (`RATELIMIT_REDIS_URL`, …). It is used as it is, and can be neither stopped nor
//!    frozen. If it does not answer, that is an error: no other way is tried.
//! 2. **A container** of the official image, or of the one named in `RATELIMIT_REDIS_IMAGE`. An image that is present is
//!    never pulled. Needs the feature `docker` and a Docker daemon on this machine.
//! 3. **A private process** of an installed program, on a free port of the loopback interface, with a folder of its own.
//! 4. **The Debian package**, if that is allowed (`RATELIMIT_INSTALL=1`, or `CI=true`), and then as above.
//!
//! `RATELIMIT_ONLY=docker` (or `process`) leaves out the other ways of starting one. Each step is told in one line on
//! stderr. What was started is stopped when the last clone of its [`Server`] is dropped, and also when this process is
//! killed.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = ratelimit_testbed::Testbed::from_env().redis().await?;
//! println!("export RATELIMIT_REDIS_URL={}", redis.url());
//! # Ok(())
//! # }
//! ```
//!
//! # Adding a server
//! One file like `redis.rs`: a `Recipe` (names, image, program, package), an implementation of `Service` (how it is
//! started, how to tell that it answers) and the methods of [`Testbed`] that obtain it; and its row in `table.rs`.
#![forbid(unsafe_code)]

mod client;
mod cluster;
#[cfg(feature = "conformance")]
mod conformance;
#[cfg(feature = "differential")]
pub mod differential;
#[cfg(feature = "docker")]
mod docker;
mod environment;
mod error;
mod family;
mod group;
mod guardian;
mod memcached;
mod obtain;
mod package;
mod port;
mod postgres;
mod process;
mod program;
mod redis;
mod resp;
mod server;
mod service;
mod settings;
mod table;
mod text;
mod user;

pub use cluster::Cluster;
pub use error::Unavailable;
pub use group::Group;
pub use memcached::Memcached;
pub use obtain::Testbed;
pub use postgres::Postgres;
pub use redis::Redis;
pub use server::{Server, ServerError};
pub use settings::{Settings, Way};
pub use table::{Row, table};
