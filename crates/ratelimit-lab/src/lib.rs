//! The command `ratelimit-lab`: shows what a limit would have done to the traffic in an access log.
//!
//! ```text
//! ratelimit-lab replay access.log --limit 100/min --by ip
//! ratelimit-lab replay access.log --suggest 1% --by ip
//! ratelimit-lab generate --model bursts --requests 1000000
//! ratelimit-lab compare --limit 100/min
//! ```
//!
//! `ratelimit-lab help` describes the commands and their options. [`run`] is the whole program. The other items are for
//! programs that show the results in another way:
//!
//! ```
//! use ratelimit_lab::{Engine, LinesRead, Plan, Reading, Wanted, read_one};
//!
//! let plan = Plan { limits: vec!["2/min".parse()?], by: vec!["ip".parse()?], ..Plan::default() };
//! let mut wanted = Wanted::time(None);
//! let mut engine = Engine::new(&plan, &mut wanted)?;
//! let log = r#"
//! {"time": "2026-01-05T10:00:01Z", "ip": "192.0.2.1"}
//! {"time": "2026-01-05T10:00:02Z", "ip": "192.0.2.1"}
//! {"time": "2026-01-05T10:00:03Z", "ip": "192.0.2.1"}
//! "#;
//! let reading = Reading { wanted, strict: true, ..Reading::default() };
//! read_one("example", log.as_bytes(), &reading, &mut LinesRead::default(), &mut |record| engine.add(record))?;
//! let (replayed, _) = engine.finish(10)?;
//! assert_eq!((replayed.columns[0].admitted, replayed.columns[0].refused), (2, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Requests are decided at the times of the log, by [`RateLimiter`](ratelimit_core::RateLimiter) on a store in memory, or
//! by the layer of `ratelimit-tower` on such a store. The lab has no arithmetic of its own for this.
#![forbid(unsafe_code)]

mod address;
mod args;
mod by;
mod clients;
mod commands;
mod compare;
mod engine;
mod field;
mod format;
mod input;
mod model;
mod page;
mod record;
mod results;
mod suggest;
mod table;

pub use by::By;
pub use commands::run;
pub use compare::{Compared, Comparison, Counted, Measured, Sources, Traffics, Trips, compare, measure};
pub use engine::{
    Bucket, Engine, KeyOutcome, MOST_BY, Mostly, Outcome, Plan, PolicyOutcome, Replayed, Series, TimeIs,
    Trace, Unit,
};
pub use field::Field;
pub use format::{Expected, Format, Pattern};
pub use input::{BadLine, LinesRead, Reading, Source, read, read_one};
pub use model::{LogText, Model, Sample, Spec, Traffic, Written};
pub use record::{Record, Wanted};
pub use suggest::{Refusals, Share, Suggestion, Tried, suggest};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
