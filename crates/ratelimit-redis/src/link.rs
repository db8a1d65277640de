//! The way to the server or the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::ErrorKind;
use redis::{Cmd, ConnectionInfo, IntoConnectionInfo, ServerErrorKind, Value};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::config::RedisConfig;
use crate::connection::{Dialer, Line};
use crate::error::Failure;
use crate::script::Script;
use crate::stream::Opener;

/// One server or a cluster of them.
pub(crate) enum Link {
    /// One server.
    Single(Lines),
    /// A cluster.
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
    pub(crate) fn new(dialer: Dialer, connections: usize) -> Self {
        let dialer = Arc::new(dialer);
        let address = dialer.address().to_owned();
        let others = (1..connections).map(|_| Line::new(dialer.clone())).collect();
        Self { first: Line::new(dialer), others, turn: AtomicUsize::new(0), address }
    }

    fn to_one_server(config: &RedisConfig) -> Result<Self, Failure> {
        let [url] = config.urls.as_slice() else {
            return Err(Failure::new(
                ErrorKind::Unsupported,
                "give exactly one address, or connect to a cluster",
            ));
        };
        let info = info(url)?;
        let opener = Opener::new(info.addr(), config.authorities.as_deref())?;
        let dialer = Dialer::new(info.redis_settings().clone(), opener, config.timeout);
        Ok(Self::new(dialer, config.connections))
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        self.first.connect(deadline).await?;
        for line in &self.others {
            line.connect(deadline).await?;
        }
        Ok(())
    }

    pub(crate) fn line(&self) -> &Line {
        if self.others.is_empty() {
            return &self.first;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % (self.others.len() + 1);
        self.others.get(turn).unwrap_or(&self.first)
    }

    /// Calls a script; if the server has forgotten it, sends it along.
    async fn run(&self, script: &Script, call: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let line = self.line();
        match line.send(call, false, deadline).await? {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                line.send(&script.call_in_full(call), false, deadline).await?
            }
            reply => reply,
        }
        .map_err(|error| Failure::from_redis(error).at(&self.address))
    }
}

impl Link {
    pub(crate) fn to_one_server(config: &RedisConfig) -> Result<Self, Failure> {
        Lines::to_one_server(config).map(Self::Single)
    }

    pub(crate) fn to_cluster(config: &RedisConfig) -> Result<Self, Failure> {
        Cluster::new(config).map(|cluster| Self::Cluster(Box::new(cluster)))
    }

    /// Connects everything, so that a wrong address is noticed at once.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        match self {
            Self::Single(lines) => lines.connect(deadline).await,
            Self::Cluster(cluster) => cluster.connect(deadline).await,
        }
    }

    /// Calls a script on keys that are all in the slot of `key`.
    pub(crate) async fn run(
        &self,
        script: &Script,
        call: Cmd,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, Failure> {
        match self {
            Self::Single(lines) => lines.run(script, &call, deadline).await,
            Self::Cluster(cluster) => cluster.send(call, Some(script), key, deadline).await,
        }
    }

    /// Sends a command on keys that are all in the slot of `key`.
    pub(crate) async fn send(&self, cmd: Cmd, key: &[u8], deadline: Instant) -> Result<Value, Failure> {
        match self {
            Self::Single(lines) => {
                let reply = lines.line().send(&cmd, false, deadline).await?;
                reply.map_err(|error| Failure::from_redis(error).at(&lines.address))
            }
            Self::Cluster(cluster) => cluster.send(cmd, None, key, deadline).await,
        }
    }

    /// Whether it is a cluster, where the keys of one call must be in one slot.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Where it leads, without password.
    pub(crate) fn address(&self) -> &str {
        match self {
            Self::Single(lines) => lines.address(),
            Self::Cluster(cluster) => cluster.address(),
        }
    }
}

/// Reads an address.
pub(crate) fn info(url: &str) -> Result<ConnectionInfo, Failure> {
    url.into_connection_info().map_err(Failure::from_redis)
}
