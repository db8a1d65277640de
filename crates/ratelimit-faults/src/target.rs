//! The stores, and what can happen to each.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::stack::CONNECTIONS;

/// A store and its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    /// The store in the process of the callers.
    Memory,
    /// One Redis server that keeps nothing on disk.
    Redis,
    /// One Redis server that writes each command to its append-only file before it answers.
    RedisAof,
    /// The layers of `Resilience`, with a fallback in memory, on one Redis server.
    RedisFallback,
    /// Redis Cluster of three masters.
    RedisCluster,
    /// A primary and a replica that three sentinels watch.
    RedisSentinel,
    /// One PostgreSQL server, an unlogged table.
    Postgres,
    /// The same with a table that survives a crash.
    PostgresLogged,
    /// One Memcached server.
    Memcached,
    /// Two Memcached servers that share the keys.
    MemcachedPair,
}

/// The servers that have counts at the same time.
#[derive(PartialEq, Eq)]
enum Servers {
    None,
    One,
    Several,
}

impl Target {
    /// Its name.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What can happen to it.
    pub(crate) fn faults(self) -> &'static [Fault] {
        use Fault::*;
        match self {
            Self::Memory => &[Dropped, Clocks],
            Self::Redis => &[
                Dropped,
                Clocks,
                Killed,
                Frozen,
                Restarted,
                ScriptsFlushed,
                Full,
                Evicting,
                Cut,
                Stalled,
                SessionsEnded,
            ],
            Self::RedisAof => &[Killed, Restarted],
            Self::RedisFallback => &[Killed, Frozen, Cut, Stalled],
            Self::RedisCluster => &[Dropped, OneKilled, OneFrozen, SlotsMoved, ScriptsFlushed],
            Self::RedisSentinel => &[FailOver, PrimaryKilled, PrimaryFrozen],
            Self::Postgres => &[Dropped, Clocks, Killed, Frozen, Restarted, SessionsEnded, Cut, Stalled],
            Self::PostgresLogged => &[Killed],
            Self::Memcached => &[Dropped, Clocks, Killed, Frozen, Evicting, Cut, Stalled],
            Self::MemcachedPair => &[Dropped, OneKilled, OneFrozen],
        }
    }

    /// How many processes call it: one if the store is in the memory of the process.
    pub(crate) fn workers(self) -> usize {
        match self.servers() {
            Servers::None => 1,
            Servers::One | Servers::Several => 3,
        }
    }

    /// How many connections a worker may have to each server.
    pub(crate) fn connections(self) -> usize {
        // The store has one more connection to each node in its address, over which it reads the slots.
        CONNECTIONS + usize::from(self == Self::RedisCluster)
    }

    /// Whether the keys of a call may be on several servers, each of which charges by itself.
    pub(crate) fn is_spread(self) -> bool {
        self.servers() == Servers::Several
    }

    /// How many servers have counts at the same time.
    fn servers(self) -> Servers {
        match self {
            Self::Memory => Servers::None,
            Self::Redis
            | Self::RedisAof
            | Self::RedisFallback
            | Self::RedisSentinel
            | Self::Postgres
            | Self::PostgresLogged
            | Self::Memcached => Servers::One,
            Self::RedisCluster | Self::MemcachedPair => Servers::Several,
        }
    }

    /// Whether it refuses only what does not fit, even if other calls are in progress; see `Decisions` of core.
    pub(crate) fn is_exact(self) -> bool {
        match self {
            Self::Memcached | Self::MemcachedPair => false,
            Self::Memory
            | Self::Redis
            | Self::RedisAof
            | Self::RedisFallback
            | Self::RedisCluster
            | Self::RedisSentinel
            | Self::Postgres
            | Self::PostgresLogged => true,
        }
    }
}
