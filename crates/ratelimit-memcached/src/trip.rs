//! Round trips: commands for the servers and their replies, with meta commands or the plain protocol.

use std::sync::Arc;

use ratelimit_core::{MeterId, StoreError};
use tokio::time::Instant;

#[cfg(feature = "memcache")]
use crate::plain::{self, Plain};
use crate::servers::{self, Answers, CommandIndex, Servers};
use crate::wire::Command;

/// The connections to the servers.
pub(crate) enum Connections {
    /// Our own connections, with meta commands.
    Meta(Servers),
    /// The program's pool, with the plain protocol.
    #[cfg(feature = "memcache")]
    Plain(Plain),
}

/// Commands that are sent together; those on one item take effect in order.
pub(crate) enum Batch {
    Meta(servers::Batch),
    #[cfg(feature = "memcache")]
    Plain(plain::Batch),
}

impl Connections {
    /// Connects to each server.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        match self {
            Self::Meta(servers) => servers.connect(deadline).await,
            #[cfg(feature = "memcache")]
            Self::Plain(_) => Ok(()), // connects on its first call
        }
    }

    /// The addresses of the servers.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        match self {
            Self::Meta(servers) => servers.addresses(),
            #[cfg(feature = "memcache")]
            Self::Plain(plain) => vec![plain.address()],
        }
    }

    /// The address of a server.
    pub(crate) fn address(&self, server: usize) -> &Arc<str> {
        match self {
            Self::Meta(servers) => servers.address(server),
            #[cfg(feature = "memcache")]
            Self::Plain(plain) => plain.address(),
        }
    }

    /// The server that stores a meter.
    pub(crate) fn choose(&self, id: &MeterId<'_>) -> usize {
        match self {
            Self::Meta(servers) => servers.choose(id),
            #[cfg(feature = "memcache")]
            Self::Plain(_) => 0, // the proxy distributes items by their keys
        }
    }

    /// Sends a batch that was made for these servers.
    pub(crate) async fn send(&self, batch: &Batch, deadline: Instant) -> Answers {
        match (self, batch) {
            (Self::Meta(servers), Batch::Meta(batch)) => servers.send(batch, deadline).await,
            // Boxed, so that calls with meta commands are spared its size.
            #[cfg(feature = "memcache")]
            (Self::Plain(plain), Batch::Plain(batch)) => Box::pin(plain.send(batch, deadline)).await,
            #[cfg(feature = "memcache")]
            _ => Answers(Vec::new()), // a batch is never sent with the other protocol
        }
    }
}

impl Batch {
    pub(crate) fn new(way: &Connections) -> Self {
        match way {
            Connections::Meta(servers) => Self::Meta(servers::Batch::new(servers)),
            #[cfg(feature = "memcache")]
            Connections::Plain(_) => Self::Plain(plain::Batch::default()),
        }
    }

    /// A batch whose answers can be [appended](Answers::append) to these.
    pub(crate) fn after(way: &Connections, answers: &Answers) -> Self {
        match way {
            Connections::Meta(_) => Self::Meta(servers::Batch::after(answers)),
            #[cfg(feature = "memcache")]
            Connections::Plain(_) => Self::Plain(plain::Batch::after(answers)),
        }
    }

    /// Adds a command on the item with this key.
    #[allow(clippy::needless_pass_by_value)] // the plain protocol keeps it
    pub(crate) fn push(&mut self, server: usize, key: &str, command: Command) -> CommandIndex {
        match self {
            Self::Meta(batch) => batch.push(server, key, &command),
            #[cfg(feature = "memcache")]
            Self::Plain(batch) => batch.push(key, command),
        }
    }
}
