//! One connection to one server, shared by callers and replaced when it breaks or stops answering.
//!
//! Batches are pipelined: they are written without waiting for replies, and replies are read as they arrive. So a large
//! batch cannot block itself, and one connection serves many callers.
//!
//! The future of a call and each of its allocations stay below a kilobyte: the allocator of most Linux systems has a
//! per-thread free list for such sizes, and takes a lock for larger allocations and for growing ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::StoreError;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{self, ERRORS};
use crate::servers::queue::{Outcome, Pending, Queue, Replies};
use crate::servers::stream::Opener;
use crate::servers::transfer::start;
use crate::wire::commands::Command;

/// The stamps of a batch share their upper bits; this many lower bits number its commands.
const PLACES: u32 = 20;

/// Commands for one server.
///
/// Each is stamped. A reply with another stamp shows that the connection is out of step, and the connection is dropped
/// before a caller gets the reply to another call.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) count: usize,
    /// The stamp of the first command.
    stamp: u64,
    bytes: Vec<u8>,
}

impl Commands {
    /// Appends a command.
    pub(crate) fn push(&mut self, key: &str, command: &Command) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if self.count == 0 {
            self.stamp = NEXT.fetch_add(1, Ordering::Relaxed) << PLACES;
            self.bytes.reserve(512);
        }
        command.encode(key, self.stamp.wrapping_add(self.count as u64), &mut self.bytes);
        self.count += 1;
    }
}

/// A connection that callers share, and its replacement if it breaks.
///
/// A batch that is not answered in time closes the connection if nothing was read from it meanwhile: the server may be frozen
/// or its packets may be lost, and every later batch would time out as well.
pub(crate) struct Connection {
    address: Arc<str>,
    opener: Arc<Opener>,
    current: Mutex<Option<Arc<OpenConnection>>>,
    /// Callers connect one after another, each within its time limit. A `SingleFlight` goes on after it, for connections that
    /// load scripts.
    dialling: tokio::sync::Mutex<()>,
}

/// An open connection.
struct OpenConnection {
    queue: Arc<Queue>,
    tasks: [AbortHandle; 2],
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Connection {
    pub(crate) fn new(address: Arc<str>, opener: Arc<Opener>) -> Self {
        Self { address, opener, current: Mutex::new(None), dialling: tokio::sync::Mutex::new(()) }
    }

    /// Connects unless it is connected.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        self.open(deadline).await.map(drop)
    }

    /// Sends a batch and returns one reply for each of its commands.
    ///
    /// If the connection breaks before a byte of the batch has been written, it is sent once more on a new connection.
    pub(crate) async fn send(&self, commands: &Commands, deadline: Instant) -> Replies {
        let outcome = match self.exchange(commands, deadline).await {
            Ok(Outcome::Unsent(_)) => Box::pin(self.exchange(commands, deadline)).await,
            outcome => outcome,
        };
        let replies = match outcome {
            Ok(Outcome::Replied(replies)) => replies,
            Ok(Outcome::Unsent(failure)) | Err(failure) => vec![Err(failure); commands.count],
        };
        let at = |failure: StoreError| failure.at(&*self.address);
        replies.into_iter().map(|reply| reply.map_err(at)).collect()
    }

    async fn exchange(&self, commands: &Commands, deadline: Instant) -> Result<Outcome, StoreError> {
        // A batch that is sent after the deadline would close the connection that other calls share.
        if Instant::now() >= deadline {
            return Err(ERRORS.late().not_applied());
        }
        // Boxed, because few calls need it and its size would count for all of them.
        let open = match self.open_connection() {
            Some(open) => open,
            None => Box::pin(self.open(deadline)).await?,
        };
        let (answer, outcome) = oneshot::channel();
        let Commands { count, stamp, bytes } = commands;
        let before = open.queue.reads();
        let pending = Pending { stamp: *stamp, count: *count, replies: Vec::with_capacity(*count), answer };
        if let Err(pending) = open.queue.try_push(bytes, pending) {
            let pushed = Box::pin(timeout_at(deadline, open.queue.push(bytes, pending))).await;
            if pushed.is_err() {
                self.hang_up_if_silent(&open, *stamp, before);
                return Err(ERRORS.late().not_applied());
            }
        }
        match timeout_at(deadline, outcome).await {
            Ok(Ok(outcome)) => Ok(outcome),
            // The tasks of the connection ended without an outcome: their runtime has shut down.
            Ok(Err(_)) => {
                self.hang_up(&open, *stamp);
                Err(error::broken().maybe_applied())
            }
            Err(_) if self.hang_up_if_silent(&open, *stamp, before) => Err(ERRORS.late().not_applied()),
            Err(_) => Err(ERRORS.late()),
        }
    }

    /// The open connection, or a new one.
    async fn open(&self, deadline: Instant) -> Result<Arc<OpenConnection>, StoreError> {
        let dial = async {
            let _only_one = self.dialling.lock().await;
            if let Some(open) = self.open_connection() {
                return Ok(open);
            }
            let open = Arc::new(OpenConnection::dial(&self.opener).await?);
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
            Ok(open)
        };
        match timeout_at(deadline, dial).await {
            Ok(dialled) => dialled,
            Err(_) => Err(ERRORS.no_connection()),
        }
        .map_err(|failure| failure.at(&*self.address))
    }

    fn open_connection(&self) -> Option<Arc<OpenConnection>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|open| !open.queue.is_closed()).cloned()
    }

    /// Hangs up if nothing was read after the first `before` reads; otherwise the server is only slow, and may still execute
    /// the batch. Returns whether the batch is known not to have been sent.
    fn hang_up_if_silent(&self, open: &Arc<OpenConnection>, stamp: u64, before: u64) -> bool {
        open.queue.reads() == before && self.hang_up(open, stamp)
    }

    /// Stops sending on this connection, and drops it unless a newer one has replaced it. Returns whether the batch with
    /// this stamp is known not to have been sent.
    fn hang_up(&self, open: &Arc<OpenConnection>, stamp: u64) -> bool {
        let unsent = open.queue.close(Some(stamp), error::broken());
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|held| Arc::ptr_eq(held, open)) {
            *current = None;
        }
        unsent
    }
}

impl OpenConnection {
    async fn dial(opener: &Opener) -> Result<Self, StoreError> {
        let queue = Arc::new(Queue::default());
        let tasks = start(opener.open().await?, &queue);
        Ok(Self { queue, tasks })
    }
}
