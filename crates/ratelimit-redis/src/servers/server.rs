//! One server.

use std::sync::Arc;

use ratelimit_store_kit::InTurn;
use redis::{Cmd, ServerErrorKind, Value};
use tokio::time::Instant;

use ratelimit_core::StoreError;

use crate::config::node_address::NodeAddress;
use crate::error;
use crate::servers::connection::Connection;
use crate::servers::dialer::Dialer;
use crate::wire::script::in_full;

/// One server, and the connections to it, which are used in turn.
pub(crate) struct Server {
    dialer: Arc<Dialer>,
    connections: InTurn<Connection>,
}

impl Server {
    /// The server that `dialer` connects to.
    pub(crate) fn new(dialer: Dialer, connections: usize) -> Self {
        let dialer = Arc::new(dialer);
        let connections = InTurn::new(connections, || Connection::new(dialer.clone()));
        Self { dialer, connections }
    }

    pub(crate) fn address(&self) -> &str {
        self.dialer.address()
    }

    /// Whether this server is at `place`.
    pub(crate) fn is_at(&self, place: &NodeAddress) -> bool {
        self.dialer.leads_to(place)
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        for connection in self.connections.all() {
            connection.connect(deadline).await?;
        }
        Ok(())
    }

    /// The next of its connections, in turn.
    pub(crate) fn connection(&self) -> &Connection {
        self.connections.next()
    }

    /// Whether a caller gave up on one of its connections, and nothing has arrived there since.
    pub(crate) fn is_silent(&self) -> bool {
        self.connections.all().iter().any(Connection::is_silent)
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
