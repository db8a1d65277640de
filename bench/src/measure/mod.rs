//! What is measured in a process of its own, one contestant in each.

mod allocations;
mod growth;
mod log;
mod mass;
mod memory;
mod speed;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub(crate) use allocations::Counting;

use crate::contestants::{self, Allow, Contestant, Visitor};

/// What a child process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Nanoseconds per decision on keys that are known.
    Speed { keys: Keys, threads: usize, allow: Allow, millis: u64 },
    /// Nanoseconds per decision on keys that were never seen.
    New { keys: u64 },
    /// Allocations per decision: on known keys, on refusals, on new keys.
    Allocations,
    /// Bytes per key at two numbers of keys, and the longest call while they come and while they expire.
    Mass { fewer: u64, more: u64 },
    /// Nanoseconds per decision with a growing number of keys.
    Growth { millis: u64 },
    /// A sliding log that is full: nanoseconds per admission and per refusal.
    Log { millis: u64 },
    /// Bytes per unit in sliding logs.
    LogMemory { units: u64 },
    /// Decisions per second on the store behind `url`, and how long they took.
    Remote { store: String, url: String, millis: u64 },
    /// Bytes per unit in sliding logs there.
    RemoteLog { store: String, url: String, units: u64 },
}

/// Which keys are asked about.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Keys {
    One,
    Uniform(u64),
    Zipf(u64),
}

/// Does one measurement after another, each with an argument that the family gives a meaning to.
pub(crate) trait Session {
    fn step(&mut self, argument: u64) -> Result<Vec<f64>>;
}

/// Makes everything ready for the first measurement.
pub(crate) fn session(contestant: &str, job: &Job) -> Result<Box<dyn Session>> {
    match job {
        Job::Log { millis } => Ok(Box::new(log::Full { millis: *millis })),
        Job::LogMemory { units } => Ok(Box::new(log::Memory { units: *units })),
        Job::Remote { store, url, millis } => crate::remote::session(contestant, store, url, *millis),
        Job::RemoteLog { store, url, units } => crate::remote::weigh_log(store, url, *units),
        job => contestants::with(contestant, Open { job: job.clone() }),
    }
}

struct Open {
    job: Job,
}

impl Visitor for Open {
    type Output = Box<dyn Session>;

    fn visit(self, contestant: impl Contestant + 'static) -> Self::Output {
        match self.job {
            Job::Speed { keys, threads, allow, millis } => {
                Box::new(speed::Known::new(&contestant, keys, threads, allow, millis))
            }
            Job::New { keys } => Box::new(speed::Unseen::new(contestant, keys)),
            Job::Mass { fewer, more } => Box::new(mass::Mass::new(contestant, fewer, more)),
            Job::Growth { millis } => Box::new(growth::Growth::new(&contestant, millis)),
            _ => Box::new(allocations::Allocations::new(contestant)),
        }
    }
}

/// A count or a time as a figure to be shown.
#[allow(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn figure(number: u64) -> f64 {
    number as f64
}
