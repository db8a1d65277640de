//! What the author of a store gives to the suite.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_core::DynCounterStore;

/// Any error, for the author's convenience.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A store under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The target's name in reports and on the command line: `memory`, `redis-cluster`, …
    fn name(&self) -> &str;

    /// Makes a space in which nothing has been counted yet: a database, a table, a key prefix that nobody else uses.
    ///
    /// Called once for each case, on the runtime that the case runs on; cases run side by side, and the runtimes last as
    /// long as the run. What it holds is cleaned up when it is dropped.
    ///
    /// # Errors
    /// If it cannot be had. The case fails.
    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError>;

    /// The server behind the store, if there is one that the suite may stop and start.
    ///
    /// Cases that do so run alone, after the others.
    fn server(&self) -> Option<Arc<dyn Server>> {
        None
    }
}

/// A space of meters that one case has for itself.
#[async_trait]
pub trait Space: Send + Sync {
    /// Opens a handle on this space: a store with connections of its own, as another process would have.
    ///
    /// # Errors
    /// If it cannot be opened. The case fails.
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError>;

    /// Where the server listens; the suite then counts the requests of a handle that [`open_at`](Self::open_at) opens.
    ///
    /// `None` for a store without a server.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Opens a handle that connects to `address`, which leads to the server at [`address`](Self::address).
    ///
    /// # Errors
    /// If it cannot be opened. The case fails.
    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Err(format!("this subject has an address but cannot open a store at {address}").into())
    }

    /// How many meters are stored in this space now, expired ones included while they take up room.
    ///
    /// `None` if it cannot be told; the cases on forgetting are then skipped.
    ///
    /// # Errors
    /// If the store does not answer. The case fails.
    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(None)
    }
}

/// A server that the suite may stop and start.
#[async_trait]
pub trait Server: Send + Sync {
    /// Ends it at once, as `kill -9` does. What it keeps only in memory is lost.
    async fn kill(&self) -> Result<(), BoxError>;

    /// Starts it again at the same address, and comes back when it answers.
    async fn start(&self) -> Result<(), BoxError>;

    /// Stops it from answering while its connections stay open, as `kill -STOP` does.
    async fn freeze(&self) -> Result<(), BoxError>;

    /// Lets it go on.
    async fn thaw(&self) -> Result<(), BoxError>;
}
