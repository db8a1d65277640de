//! The way to the server or the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::ErrorKind;
use redis::{Cmd, ConnectionInfo, IntoConnectionInfo, Value};
use tokio::time::Instant;

#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::config::RedisConfig;
use crate::connection::{Dialer, Line};
use crate::error::Failure;
use crate::script::Script;

/// One server or a cluster of them.
pub(crate) enum Link {
    /// One server.
    Single(Lines),
    /// A cluster.
    #[cfg(feature = "cluster")]
    Cluster(Box<Cluster>),
}

/// Connections to one server, used in turn.
pub(crate) struct Lines {
    first: Line,
    others: Vec<Line>,
    turn: AtomicUsize,
    address: String,
}

impl Lines {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, Failure> {
        let [url] = config.urls.as_slice() else {
            return Err(Failure::new(
                ErrorKind::Unsupported,
                "give exactly one address, or connect to a cluster",
            ));
        };
        let dialer = Arc::new(Dialer::new(&info(url)?, config.authorities.as_deref())?);
        let address = dialer.address().to_owned();
        let others = (1..config.connections).map(|_| Line::new(dialer.clone())).collect();
        Ok(Self { first: Line::new(dialer), others, turn: AtomicUsize::new(0), address })
    }

    async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        self.first.connect(deadline).await?;
        for line in &self.others {
            line.connect(deadline).await?;
        }
        Ok(())
    }

    fn line(&self) -> &Line {
        if self.others.is_empty() {
            return &self.first;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % (self.others.len() + 1);
        self.others.get(turn).unwrap_or(&self.first)
    }
}

impl Link {
    /// Connects everything, so that a wrong address is noticed at once.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        match self {
            Self::Single(lines) => lines.connect(deadline).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.connect(deadline).await,
        }
    }

    /// Calls a script whose keys are all in one slot.
    pub(crate) async fn run(&self, script: &Script, call: Cmd, deadline: Instant) -> Result<Value, Failure> {
        match self {
            Self::Single(lines) => lines.line().run(script, call, deadline).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.run(script, call, deadline).await,
        }
    }

    /// Sends a command whose keys are all in one slot.
    pub(crate) async fn send(&self, cmd: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        match self {
            Self::Single(lines) => {
                let reply = lines.line().send(cmd, deadline).await?;
                reply.map_err(|error| Failure::from_redis(error).at(&lines.address))
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.send(cmd, deadline).await,
        }
    }

    /// Whether it is a cluster, where the keys of one call must be in one slot.
    pub(crate) fn has_slots(&self) -> bool {
        match self {
            Self::Single(_) => false,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => true,
        }
    }

    /// Where it leads, without password.
    pub(crate) fn address(&self) -> &str {
        match self {
            Self::Single(lines) => &lines.address,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.address(),
        }
    }
}

/// Reads an address.
pub(crate) fn info(url: &str) -> Result<ConnectionInfo, Failure> {
    url.into_connection_info().map_err(Failure::from_redis)
}
