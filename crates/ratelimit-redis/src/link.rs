//! The connections to the server or the cluster.

use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::time::Instant;

use ratelimit_core::StoreError;

use crate::cluster::Cluster;
use crate::config::RedisConfig;
use crate::provided::Provided;
use crate::script::Script;
use crate::sentinel::Sentinel;
use crate::server::Server;
use crate::servers::Servers;

/// One server, the primary that sentinels watch, a cluster, or a connection or pool of the program.
pub(crate) enum Link {
    /// One server.
    Single(Server),
    /// The primary that sentinels watch.
    Sentinel(Box<Sentinel>),
    /// A cluster.
    Cluster(Box<Cluster>),
    /// A connection or a pool of the program.
    Provided(Provided),
}

impl Link {
    /// A link to the servers of a configuration.
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, StoreError> {
        match &config.servers {
            Servers::One(info) => Server::new(info, config, config.connections).map(Self::Single),
            Servers::Sentinel(address) => {
                Sentinel::new(address, config).map(|sentinel| Self::Sentinel(Box::new(sentinel)))
            }
            Servers::Cluster(nodes) => {
                Cluster::new(nodes, config).map(|cluster| Self::Cluster(Box::new(cluster)))
            }
        }
    }

    /// Connects, so that a wrong address is noticed immediately.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        match self {
            Self::Single(lines) => lines.connect(deadline).await,
            Self::Sentinel(sentinel) => sentinel.connect(deadline).await,
            Self::Cluster(cluster) => cluster.connect(deadline).await,
            Self::Provided(_) => Ok(()),
        }
    }

    /// Calls a script on keys that are all in the slot of `key`.
    pub(crate) async fn run(
        &self,
        script: &Script,
        call: Cmd,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        match self {
            Self::Single(lines) => lines.run(script, &call, deadline).await,
            Self::Sentinel(sentinel) => sentinel.send(&call, Some(script), deadline).await,
            Self::Cluster(cluster) => cluster.send(call, Some(script), key, deadline).await,
            Self::Provided(given) => given.send(call, Some(script), deadline).await,
        }
    }

    /// Sends a command on keys that are all in the slot of `key`.
    pub(crate) async fn send(&self, cmd: Cmd, key: &[u8], deadline: Instant) -> Result<Value, StoreError> {
        match self {
            Self::Single(lines) => lines.send(&cmd, deadline).await,
            Self::Sentinel(sentinel) => sentinel.send(&cmd, None, deadline).await,
            Self::Cluster(cluster) => cluster.send(cmd, None, key, deadline).await,
            Self::Provided(given) => given.send(cmd, None, deadline).await,
        }
    }

    /// The node of a cluster that serves a slot, if it is known.
    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<Server>> {
        if let Self::Cluster(cluster) = self { cluster.known_owner(slot) } else { None }
    }

    /// The nodes of a cluster that serve slots.
    pub(crate) fn nodes(&self) -> Option<Vec<Arc<Server>>> {
        if let Self::Cluster(cluster) = self { Some(cluster.serving()) } else { None }
    }

    /// Starts a survey of the cluster's slots after a node has failed; does nothing without a cluster.
    pub(crate) fn look_soon(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.survey_soon();
        }
    }

    /// Whether it leads to a cluster, where all keys of a call must be in one slot.
    pub(crate) fn has_slots(&self) -> bool {
        match self {
            Self::Single(_) | Self::Sentinel(_) => false,
            Self::Cluster(_) => true,
            Self::Provided(given) => given.has_slots(),
        }
    }

    /// The address, without a password.
    pub(crate) fn address(&self) -> &str {
        match self {
            Self::Single(lines) => lines.address(),
            Self::Sentinel(sentinel) => sentinel.address(),
            Self::Cluster(cluster) => cluster.address(),
            Self::Provided(given) => given.address(),
        }
    }
}
