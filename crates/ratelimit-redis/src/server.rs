//! One server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::{Cmd, ConnectionInfo, ServerErrorKind, Value};
use tokio::time::Instant;

use ratelimit_core::StoreError;

use crate::config::RedisConfig;
use crate::connection::{Connection, Dialer};
use crate::error;
use crate::node_address::NodeAddress;
use crate::script::Script;
use crate::stream::Opener;

/// One server, and the connections to it, which are used in turn.
pub(crate) struct Server {
    first: Connection,
    others: Vec<Connection>,
    turn: AtomicUsize,
    address: String,
}

impl Server {
    /// The server that `dialer` connects to.
    pub(crate) fn with_dialer(dialer: Dialer, connections: usize) -> Self {
        let dialer = Arc::new(dialer);
        let address = dialer.address().to_owned();
        let others = (1..connections).map(|_| Connection::new(dialer.clone())).collect();
        Self { first: Connection::new(dialer), others, turn: AtomicUsize::new(0), address }
    }

    /// The server at this address, with this number of connections.
    pub(crate) fn new(
        info: &ConnectionInfo,
        config: &RedisConfig,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let opener = Opener::new(info.addr(), config)?;
        let dialer = Dialer::new(info.redis_settings().clone(), opener, config.timeout);
        Ok(Self::with_dialer(dialer, connections))
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Whether this server is at `place`.
    pub(crate) fn is_at(&self, place: &NodeAddress) -> bool {
        self.first.dialer().leads_to(place)
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        self.first.connect(deadline).await?;
        for connection in &self.others {
            connection.connect(deadline).await?;
        }
        Ok(())
    }

    pub(crate) fn connection(&self) -> &Connection {
        if self.others.is_empty() {
            return &self.first;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % (self.others.len() + 1);
        self.others.get(turn).unwrap_or(&self.first)
    }

    /// Sends a command.
    pub(crate) async fn send(&self, cmd: &Cmd, deadline: Instant) -> Result<Value, StoreError> {
        let reply = self.connection().send(cmd, false, deadline).await?;
        reply.map_err(|error| error::from_redis(error).at(&self.address))
    }

    /// Calls a script, sending it in full if the server does not have it.
    pub(crate) async fn run(
        &self,
        script: &Script,
        call: &Cmd,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let connection = self.connection();
        match connection.send(call, false, deadline).await? {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                connection.send(&script.call_in_full(call), false, deadline).await?
            }
            reply => reply,
        }
        .map_err(|error| error::from_redis(error).at(&self.address))
    }
}
