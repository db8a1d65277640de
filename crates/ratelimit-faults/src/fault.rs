//! What can happen to a server, to its network, to clocks and to callers.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Something that goes wrong during a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// Nothing: callers and servers warm up.
    Nothing,
    /// Callers drop half of their futures at any instant.
    Dropped,
    /// The clocks of the clients are seconds apart, and step forward and back.
    Clocks,
    /// `kill -9`, and a new start.
    Killed,
    /// SIGSTOP, and later SIGCONT.
    Frozen,
    /// The server is shut down cleanly, and started again.
    Restarted,
    /// `SCRIPT FLUSH` and `FUNCTION FLUSH`, again and again.
    ScriptsFlushed,
    /// The memory of the server is full, and it refuses writes.
    Full,
    /// The memory of the server is full, and it evicts keys.
    Evicting,
    /// Connections are cut in the middle of an answer.
    Cut,
    /// Connections stall in the middle of an answer.
    Stalled,
    /// The administrator makes the replica the primary.
    FailOver,
    /// The primary is killed, and the sentinels replace it.
    PrimaryKilled,
    /// The primary is frozen until the sentinels have replaced it.
    PrimaryFrozen,
    /// One of several servers is killed, and started again.
    OneKilled,
    /// One of several servers is frozen.
    OneFrozen,
    /// Slots with keys in them move to another node.
    SlotsMoved,
    /// The administrator ends the sessions of the clients, again and again.
    SessionsEnded,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Fault {
    /// Whether calls may fail while it lasts.
    pub(crate) fn may_fail(self) -> bool {
        let fine = [Self::Nothing, Self::Dropped, Self::Clocks, Self::ScriptsFlushed, Self::SlotsMoved];
        !fine.contains(&self)
    }

    /// About how long a phase takes in addition to its plan.
    pub(crate) fn overhead(self) -> Duration {
        Duration::from_millis(match self {
            Self::Nothing | Self::Dropped | Self::Clocks | Self::ScriptsFlushed => 2_000,
            Self::FailOver | Self::PrimaryKilled | Self::PrimaryFrozen => 14_000,
            _ => 3_500,
        })
    }
}
