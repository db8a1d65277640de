//! The suite that proves a rate limit store.
//!
//! It checks every promise of [`CounterStore`](ratelimit_core::CounterStore): that decisions are atomic and all or
//! nothing, that they are those of every other store, that meters are forgotten neither early nor never, that a slice
//! takes one trip, that keys are opaque, and that a server which dies or freezes is an error and never a decision.
//!
//! # Running it on a store of your own
//! Three things are needed: a subject that makes empty spaces, a space that opens handles on itself, and a `main`.
//! This is the whole of `tests/conformance.rs`, for the [reference store](broken_stores::ModelStore) of this crate:
//!
//! ```no_run
//! use std::{process::ExitCode, sync::Arc};
//!
//! use async_trait::async_trait;
//! use ratelimit_conformance::{BoxError, Space, Subject, broken_stores::ModelStore};
//! use ratelimit_core::DynCounterStore;
//!
//! struct Mine;
//! struct MySpace(Arc<ModelStore>);
//!
//! #[async_trait]
//! impl Subject for Mine {
//!     fn name(&self) -> &str {
//!         "mine"
//!     }
//!     async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
//!         Ok(Arc::new(MySpace(Arc::default())))
//!     }
//! }
//!
//! #[async_trait]
//! impl Space for MySpace {
//!     async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
//!         Ok(self.0.clone())
//!     }
//!     async fn meters(&self) -> Result<Option<u64>, BoxError> {
//!         Ok(Some(self.0.len()))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     ratelimit_conformance::main(vec![Box::new(Mine)])
//! }
//! ```
//!
//! and this in `Cargo.toml`:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! A store with a server also gives its address ([`Space::address`], [`Space::open_at`]), so that its trips can be
//! counted, and control over the server ([`Subject::server`]), so that it can be killed and frozen. What a subject
//! could offer and does not is reported as skipped, and skips fail the run unless `--allow-skips` is given.
//!
//! # Command line
//! `cargo test --test conformance -- [TARGET...]` with `--filter TEXT` and `--skip TEXT` (or, with `--exact`, whole names),
//! `--list`, `--jobs N`, `--random N` (how many random claims to compare with the model), `--seed N`, `--fail-fast`,
//! `--case-limit SECONDS`, `--report FILE` (JSON), `--junit FILE`, `--allow-skips`. A name that is no target's is a filter.
//! The last line is `N passed, N failed, N skipped`; before it comes how many cases do not apply, and why.
//!
//! A case that has had its time fails as hung, and the others go on, whatever its store does: block a thread, spin, or wait
//! for ever. The files of the report are kept up while the suite runs.
//!
//! # Does it bite?
//! [`broken_stores`] holds stores that are broken on purpose, each in one small way that real stores have been. The
//! tests of this crate prove that each is caught by a named case.
#![forbid(unsafe_code)]

mod bench;
pub mod broken_stores;
mod case;
mod cases;
mod cli;
mod control;
mod describe;
mod failure;
mod files;
mod journal;
mod kind;
mod lane;
mod model;
mod progress;
mod proxy;
mod random;
mod report;
mod runner;
mod subject;
mod suite;
mod table;
mod trial;

pub use cli::main;
pub use report::{CaseReport, Outcome, Report, Totals};
pub use subject::{BoxError, Server, Space, Subject};
pub use suite::Suite;
