//! One server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::{Cmd, ServerErrorKind, Value};
use tokio::time::Instant;

use ratelimit_core::StoreError;

use crate::config::node_address::NodeAddress;
use crate::error;
use crate::servers::connection::{Connection, Dialer};
use crate::wire::script::in_full;

/// One server, and the connections to it, which are used in turn.
pub(crate) struct Server {
    dialer: Arc<Dialer>,
    connections: Vec<Connection>,
    turn: AtomicUsize,
}

impl Server {
    /// The server that `dialer` connects to.
    pub(crate) fn new(dialer: Dialer, connections: usize) -> Self {
        let dialer = Arc::new(dialer);
        let connections = (0..connections.max(1)).map(|_| Connection::new(dialer.clone())).collect();
        Self { dialer, connections, turn: AtomicUsize::new(0) }
    }

    pub(crate) fn address(&self) -> &str {
        self.dialer.address()
    }

    /// Whether this server is at `place`.
    pub(crate) fn is_at(&self, place: &NodeAddress) -> bool {
        self.dialer.leads_to(place)
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        for connection in &self.connections {
            connection.connect(deadline).await?;
        }
        Ok(())
    }

    /// The next of its connections, in turn.
    pub(crate) fn connection(&self) -> &Connection {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.connections[turn % self.connections.len()]
    }

    /// Whether a caller gave up on one of its connections, and nothing has arrived there since.
    pub(crate) fn is_silent(&self) -> bool {
        self.connections.iter().any(Connection::is_silent)
    }

    /// Sends a command. If the server does not have its script, sends it with the whole script.
    pub(crate) async fn send(&self, cmd: &Cmd, deadline: Instant) -> Result<Value, StoreError> {
        let connection = self.connection();
        let mut reply = connection.send(cmd, false, deadline).await?;
        if reply.as_ref().is_err_and(|error| error.kind() == ServerErrorKind::NoScript.into())
            && let Some(full) = in_full(cmd)
        {
            reply = connection.send(&full, false, deadline).await?;
        }
        reply.map_err(|error| error::from_redis(error).at(self.address()))
    }
}
