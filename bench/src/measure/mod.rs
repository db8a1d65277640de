//! The measurements in a child process, which runs one contestant.

mod allocations;
mod growth;
pub(crate) mod instructions;
mod log;
mod mass;
mod memory;
mod speed;

use anyhow::Result;

pub(crate) use allocations::Counting;

use crate::contestants::{self, Contestant, Visitor};
use crate::job::Job;
use crate::remote;
use crate::session::Session;

/// Prepares the measurements of a job.
pub(crate) fn session(contestant: &str, job: &Job) -> Result<Box<dyn Session>> {
    match job {
        Job::Instructions => Ok(Box::new(instructions::Instructions { contestant: contestant.to_owned() })),
        Job::Log { millis } => Ok(Box::new(log::Full { millis: *millis })),
        Job::LogMemory { units } => Ok(Box::new(log::Memory { units: *units })),
        Job::Remote { store, url, millis } => remote::session(contestant, store, url, *millis),
        Job::RemoteLog { store, url, units } => remote::weigh_log(store, url, *units),
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
