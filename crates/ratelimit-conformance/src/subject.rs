//! The interface between a store and the suite.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_core::DynCounterStore;

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A handle on the store under test.
pub(crate) type Handle = Arc<dyn DynCounterStore>;

/// A store under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The target's name in reports and on the command line: `memory`, `redis-cluster`, …
    fn name(&self) -> &str;

    /// Creates an empty space: a database, a table, or an unused key prefix.
    ///
    /// The suite calls this once for each case, on the runtime of the case. Cases run concurrently, and the runtimes last as
    /// long as the run. Clean up when the space is dropped.
    ///
    /// # Errors
    /// If the space cannot be created. The case fails.
    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError>;

    /// The server behind the store, if there is one that the suite may stop and start.
    ///
    /// Cases that do so run alone, after the others.
    fn server(&self) -> Option<Arc<dyn Server>> {
        None
    }

    /// Why the suite cannot run on this subject, such as a missing server.
    ///
    /// Then no case runs, and the report lists the subject as [unavailable](crate::Report::unavailable).
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// Whether the store reconnects by itself after its server was down.
    ///
    /// A store on a connection that the program has opened need not. Then cases that restart the server and continue with
    /// the same handle do not apply.
    fn reconnects(&self) -> bool {
        true
    }
}

/// A space of meters for a single case.
#[async_trait]
pub trait Space: Send + Sync {
    /// Opens a handle on this space: a store with its own connections, like that of another process.
    ///
    /// # Errors
    /// If it cannot be opened. The case fails.
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError>;

    /// Opens a handle whose calls may take a minute. Cases that send thousands of claims in one call use it: they test
    /// whether the answers are right, not how soon they come, and other programs may use the machine as well.
    ///
    /// By default [`open`](Self::open).
    ///
    /// # Errors
    /// If it cannot be opened. The case fails.
    async fn open_patient(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open().await
    }

    /// The address of the server. The suite counts the requests of handles opened with [`open_at`](Self::open_at).
    ///
    /// `None` for a store without a server.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Opens a handle that connects to `address`: a proxy for the server at [`address`](Self::address).
    ///
    /// # Errors
    /// If it cannot be opened. The case fails.
    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Err(format!("this subject has an address but cannot open a store at {address}").into())
    }

    /// Whether the store sends all that a call needs together, and so takes one round trip, or the two of a conservative store.
    ///
    /// Return `false` if it takes more: because its protocol needs a round trip for each command, or because it locks rows, reads
    /// them, and writes in a second round trip. Then these cases do not apply:
    ///
    /// - `trips/one-for-*` and `trips/bytes-do-not-grow`, which count round trips and bytes;
    /// - `batches/a-thousand-keys`, `batches/thousands-on-one-key`, `batches/twelve-thousand-meters` and
    ///   `lost-answers/a-large-batch`: batches that take too long in so many round trips.
    ///
    /// Others ask for less: the batches of `deadlocks/batches-in-opposite-orders`, `dropped/large-batches` and
    /// `lost-answers/too-late` have at most 64 slices, `trips/no-connection-for-each` counts connections only, and in
    /// `failures/frozen` the error may say that nothing was charged. All other cases apply. The decisions of such a store are as
    /// exact as those of any other.
    fn sends_together(&self) -> bool {
        true
    }

    /// The number of meters stored in this space, including expired meters that still take space.
    ///
    /// `None` if it is unknown. Then the cases about expiry are skipped.
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
    /// Ends the server at once, like `kill -9`, even if it is frozen. It loses the data that it keeps only in memory.
    async fn kill(&self) -> Result<(), BoxError>;

    /// Starts the server again at the same address, and returns when it answers.
    async fn start(&self) -> Result<(), BoxError>;

    /// Suspends the server while its connections stay open, like `kill -STOP`.
    async fn freeze(&self) -> Result<(), BoxError>;

    /// Resumes the server.
    async fn thaw(&self) -> Result<(), BoxError>;
}
