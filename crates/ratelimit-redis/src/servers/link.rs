//! The connections to the server or the cluster.

use redis::{Cmd, Value};
use tokio::time::Instant;

use ratelimit_core::StoreError;

use crate::config::RedisConfig;
use crate::config::addresses::Servers;
use crate::servers::cluster::Cluster;
use crate::servers::dialer::Dialer;
use crate::servers::provided::Provided;
use crate::servers::sentinel::Sentinel;
use crate::servers::server::Server;

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
            Servers::One(info) => {
                let dialer = Dialer::new(info.addr(), info.redis_settings().clone(), config)?;
                Ok(Self::Single(Server::new(dialer, config.connections)))
            }
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
            Self::Single(server) => server.connect(deadline).await,
            Self::Sentinel(sentinel) => sentinel.connect(deadline).await,
            Self::Cluster(cluster) => cluster.connect(deadline).await,
            Self::Provided(_) => Ok(()),
        }
    }

    /// Sends a command whose keys are all in one slot.
    pub(crate) async fn send(&self, cmd: Cmd, deadline: Instant) -> Result<Value, StoreError> {
        match self {
            Self::Single(server) => server.send(&cmd, deadline).await,
            Self::Sentinel(sentinel) => sentinel.send(&cmd, deadline).await,
            Self::Cluster(cluster) => cluster.send(cmd, deadline).await,
            Self::Provided(provided) => provided.send(cmd, deadline).await,
        }
    }

    /// The cluster, if this is one of the store's own.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        if let Self::Cluster(cluster) = self { Some(cluster) } else { None }
    }

    /// Whether it leads to a cluster, where all keys of a call must be in one slot.
    pub(crate) fn has_slots(&self) -> bool {
        match self {
            Self::Single(_) | Self::Sentinel(_) => false,
            Self::Cluster(_) => true,
            Self::Provided(provided) => provided.has_slots(),
        }
    }

    /// The address, without a password.
    pub(crate) fn address(&self) -> &str {
        match self {
            Self::Single(server) => server.address(),
            Self::Sentinel(sentinel) => sentinel.address(),
            Self::Cluster(cluster) => cluster.address(),
            Self::Provided(provided) => provided.address(),
        }
    }
}
