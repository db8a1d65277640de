//! The conformance suite for rate limit stores.
//!
//! It tests the contract of [`CounterStore`](ratelimit_core::CounterStore): decisions are atomic, all or nothing, and the
//! same as on every other store; meters expire, but not too early; a slice takes one round trip; keys are opaque; and a
//! server that dies or freezes causes an error and never a decision.
//!
//! # An ordinary test
//! [`Suite::check`] runs all cases on a store and panics with a report unless they pass. Implement [`Subject`], which
//! creates an empty [`Space`] for each case, and [`Space`], which opens handles on it. Here for the [`ReferenceStore`] of
//! this crate:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use ratelimit_conformance::{BoxError, ReferenceStore, Space, Subject, Suite};
//! use ratelimit_core::DynCounterStore;
//!
//! #[tokio::test]
//! async fn my_store_passes() {
//!     Suite::default().check(MyStore).await;
//! }
//!
//! struct MyStore;
//! struct Database(Arc<ReferenceStore>);
//!
//! #[async_trait]
//! impl Subject for MyStore {
//!     fn name(&self) -> &str {
//!         "my-store"
//!     }
//!     async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
//!         Ok(Arc::new(Database(Arc::default())))
//!     }
//! }
//!
//! #[async_trait]
//! impl Space for Database {
//!     async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
//!         Ok(self.0.clone())
//!     }
//!     async fn meters(&self) -> Result<Option<u64>, BoxError> {
//!         Ok(Some(self.0.len()))
//!     }
//! }
//! ```
//!
//! [`Suite`] has options: which cases to run, how many at the same time, how many random claims. [`Suite::run`] returns a
//! [`Report`] instead.
//!
//! A store with a server also returns its address ([`Space::address`], [`Space::open_at`]), so that the suite can count
//! round trips, and control over the server ([`Subject::server`]), so that the suite can kill and freeze it: a
//! [`ChildProcess`], for instance. The report
//! lists cases as skipped if the subject lacks something that it could provide. [`Suite::check`] fails on skips.
//!
//! # A command line
//! [`main`] is the `main` of a test with its own harness:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     ratelimit_conformance::main(vec![/* Box::new(MyStore) */])
//! }
//! ```
//!
//! `cargo test --test conformance -- [TARGET...]` has the options `--filter TEXT` and `--skip TEXT` (or, with `--exact`,
//! whole names), `--list`, `--jobs N`, `--random N` (the number of random claims), `--seed N`, `--fail-fast`,
//! `--case-limit SECONDS`, `--report FILE` (JSON), `--junit FILE`, `--allow-skips`, `--allow-unavailable`. A name that is not
//! a target is a filter. The last line of the output is `N passed, N failed, N skipped`. The lines before it say how many cases do not
//! apply, and why, and with which failed case to start.
//!
//! A case that exceeds its time limit fails as hung. The other cases go on, even if the store blocks a thread, spins, or
//! waits forever. The suite updates the report files while it runs.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bench;
mod case;
mod cases;
mod child_process;
mod cli;
mod clock;
mod control;
mod describe;
mod failure;
mod files;
mod in_process;
mod in_time;
mod job;
mod journal;
mod kind;
mod lane;
mod model;
mod printed;
mod progress;
mod proxy;
mod random;
mod reference_store;
mod report;
mod runner;
mod subject;
mod suite;
mod table;
mod trial;

pub use child_process::ChildProcess;
pub use cli::main;
pub use in_process::InProcess;
pub use reference_store::ReferenceStore;
pub use report::{CaseReport, Outcome, Report, Totals};
pub use subject::{BoxError, Server, Space, Subject};
pub use suite::Suite;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/conformance.md")]
struct Guide;
