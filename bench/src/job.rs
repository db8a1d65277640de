//! The measurement that a child process performs.

use serde::{Deserialize, Serialize};

use crate::contestants::Allow;

/// A measurement that a child process performs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Nanoseconds per decision on known keys.
    Speed { keys: Keys, threads: usize, allow: Allow, millis: u64 },
    /// Nanoseconds per decision on new keys.
    New { keys: u64 },
    /// Instructions per decision on one busy key: admitted, and refused.
    Instructions,
    /// Allocations per decision: on known keys, on refusals, on new keys.
    Allocations,
    /// Bytes per key at two numbers of keys, and the longest call during insertion and during expiry.
    Mass { fewer: u64, more: u64 },
    /// Nanoseconds per decision with a growing number of keys.
    Growth { millis: u64 },
    /// Nanoseconds per admission and per refusal of a full sliding log.
    Log { millis: u64 },
    /// Bytes per unit in sliding logs.
    LogMemory { units: u64 },
    /// Decisions per second on the store at `url`, and the latency of calls.
    Remote { store: String, url: String, millis: u64 },
    /// Bytes per unit in sliding logs on the store at `url`.
    RemoteLog { store: String, url: String, units: u64 },
}

/// The keys of the requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Keys {
    One,
    Uniform(u64),
    Zipf(u64),
}
