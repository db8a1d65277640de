//! One connection to one server, shared by callers and dialled anew when it has broken or fallen silent.
//!
//! Callers' batches are written one after another without waiting for answers, and answers are read as they come: a big batch
//! cannot block itself, and many callers need one connection.
//!
//! A call's future is kept below a kilobyte, and so is whatever it allocates: the allocator of most Linux systems has a list of
//! free places for such sizes in each thread, and a lock for larger ones and for whatever grows.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::ErrorKind;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::queue::{Outcome, Pending, Queue, Replies};
use crate::reply::{Received, Reply, Stamp, receive};
use crate::wire::Command;

/// What is read at once, at least.
const READ: usize = 16 * 1024;

/// A buffer for what is sent keeps so much of its space.
const KEPT: usize = 256 * 1024;

/// Stamps of a batch have their upper bits in common; so many lower ones tell its commands apart.
const PLACES: u32 = 20;

/// Commands for one server, after so many of earlier batches.
///
/// Each is stamped: a reply that carries another stamp tells that the connection is out of step, and it is given up before
/// a caller gets somebody else's reply.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    before: usize,
    pub(crate) count: usize,
    /// The stamp of the first.
    stamp: u64,
    bytes: Vec<u8>,
}

impl Commands {
    /// None yet, after so many.
    pub(crate) fn after(before: usize) -> Self {
        Self { before, ..Self::default() }
    }

    /// Gives the command's place.
    pub(crate) fn push(&mut self, command: &Command<'_>) -> usize {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if self.count == 0 {
            self.stamp = NEXT.fetch_add(1, Ordering::Relaxed) << PLACES;
            self.bytes.reserve(512);
        }
        command.encode(self.stamp.wrapping_add(self.count as u64), &mut self.bytes);
        self.count += 1;
        self.before + self.count - 1
    }
}

/// A connection that callers share, and its next if it breaks.
///
/// A batch that is not answered in time takes the connection with it: the server may be frozen or its packets may be lost,
/// and then every later batch on it would wait in vain.
pub(crate) struct Line {
    address: Arc<str>,
    current: Mutex<Option<Arc<Wire>>>,
    dialling: tokio::sync::Mutex<()>,
}

/// A connection as it was dialled.
struct Wire {
    queue: Arc<Queue>,
    tasks: [AbortHandle; 2],
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Line {
    pub(crate) fn new(address: Arc<str>) -> Self {
        Self { address, current: Mutex::new(None), dialling: tokio::sync::Mutex::new(()) }
    }

    /// Connects unless it is connected.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        self.wire(deadline).await.map(drop)
    }

    /// Sends a batch, and gives one reply for each of its commands.
    ///
    /// If the connection breaks before a byte of it has been written, it is sent once more on a new one.
    pub(crate) async fn send(&self, commands: &Commands, deadline: Instant) -> Replies {
        let outcome = match self.exchange(commands, deadline).await {
            Ok(None) => Box::pin(self.exchange(commands, deadline)).await,
            outcome => outcome,
        };
        let replies = outcome.and_then(|replies| replies.ok_or_else(Failure::broken));
        let mut replies = replies.unwrap_or_else(|failure| vec![Err(failure); commands.count]);
        for reply in &mut replies {
            if let Err(failure) = reply {
                *failure = failure.clone().at(&self.address);
            }
        }
        replies
    }

    /// `None` if the connection broke before a byte was written.
    async fn exchange(&self, commands: &Commands, deadline: Instant) -> Result<Option<Replies>, Failure> {
        // What few calls need is set apart, so that the others are spared the space for it.
        let wire = match self.open_wire() {
            Some(wire) => wire,
            None => Box::pin(self.wire(deadline)).await?,
        };
        let (answer, outcome) = oneshot::channel();
        let Commands { count, stamp, bytes, .. } = commands;
        let pending = Pending { stamp: *stamp, count: *count, replies: Vec::with_capacity(*count), answer };
        if let Err(pending) = wire.queue.try_push(bytes, pending) {
            let pushed = Box::pin(timeout_at(deadline, wire.queue.push(bytes, pending))).await;
            if pushed.is_err() {
                self.hang_up(&wire, *stamp);
                return Err(Failure::late());
            }
        }
        match timeout_at(deadline, outcome).await {
            Ok(Ok(Outcome::Replied(replies))) => Ok(Some(replies)),
            Ok(Ok(Outcome::Unsent)) => Ok(None),
            // Whoever was to answer has gone without a word: its runtime has ended.
            Ok(Err(_)) => {
                self.hang_up(&wire, *stamp);
                Err(Failure::broken().maybe_applied())
            }
            Err(_) if self.hang_up(&wire, *stamp) => Err(Failure::late()),
            Err(_) => Err(Failure::late().maybe_applied()),
        }
    }

    /// The connection in use, or a new one.
    async fn wire(&self, deadline: Instant) -> Result<Arc<Wire>, Failure> {
        let dial = async {
            let _only_one = self.dialling.lock().await;
            if let Some(wire) = self.open_wire() {
                return Ok(wire);
            }
            let wire = Arc::new(Wire::dial(&self.address).await?);
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(wire.clone());
            Ok(wire)
        };
        match timeout_at(deadline, dial).await {
            Ok(dialled) => dialled.map_err(|failure: Failure| failure.at(&self.address)),
            Err(_) => {
                let late = Failure::new(ErrorKind::Timeout, "no connection within the time limit");
                Err(late.at(&self.address))
            }
        }
    }

    fn open_wire(&self) -> Option<Arc<Wire>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|wire| !wire.queue.is_closed()).cloned()
    }

    /// Sends nothing more over this connection, and forgets it unless a newer one has taken its place. Tells whether the
    /// batch with this stamp is known not to have been sent.
    fn hang_up(&self, wire: &Arc<Wire>, stamp: u64) -> bool {
        let unsent = wire.queue.close(Some(stamp));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|held| Arc::ptr_eq(held, wire)) {
            *current = None;
        }
        unsent
    }
}

impl Wire {
    async fn dial(address: &str) -> Result<Self, Failure> {
        let failure = |error: std::io::Error| Failure::from_io(&error);
        let stream = TcpStream::connect(address).await.map_err(failure)?;
        stream.set_nodelay(true).map_err(failure)?;
        let queue = Arc::new(Queue::default());
        let (reader, writer) = stream.into_split();
        // Two tasks: replies may come while a batch is being written.
        let tasks = [
            tokio::spawn(read(reader, Closing(queue.clone()))).abort_handle(),
            tokio::spawn(write(writer, Closing(queue.clone()))).abort_handle(),
        ];
        Ok(Self { queue, tasks })
    }
}

/// Ends the other task as well, whatever ends this one: also the end of its runtime.
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(None);
    }
}

/// Writes batches as they come, those that wait together at once. Ends if the connection does.
async fn write(mut stream: OwnedWriteHalf, queue: Closing) {
    let Closing(queue) = &queue;
    let mut buffer = Vec::new();
    loop {
        queue.work().await;
        if queue.is_idle() {
            if has_hung_up(stream.as_ref()) {
                return;
            }
        } else {
            // The server is busy with others: whoever is about to ask can join.
            tokio::task::yield_now().await;
        }
        buffer.clear();
        buffer.shrink_to(KEPT);
        if !queue.take(&mut buffer) {
            return;
        }
        let written = tokio::select! {
            biased;
            written = stream.write_all(&buffer) => written.is_ok(),
            () = queue.end() => false,
        };
        if !written {
            return;
        }
    }
}

/// Whether the server has ended a connection on which nothing is awaited, also if the runtime has yet to learn of it. What is
/// not sent then can go over a new connection.
fn has_hung_up(stream: &TcpStream) -> bool {
    let seen = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    !matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Batches whose replies are to come. At the end they are told that none will.
struct Awaited {
    queue: Closing,
    batches: VecDeque<Pending>,
    /// How many were answered since the queue was told.
    answered: usize,
}

impl Awaited {
    /// Tells the queue, and takes over what was sent meanwhile.
    fn update(&mut self) {
        self.queue.0.answered(std::mem::take(&mut self.answered), &mut self.batches);
    }

    /// Hands a reply to the batch that has waited longest; `false` if it is not its.
    fn receive(&mut self, reply: Result<Reply, Failure>, stamp: Stamp) -> bool {
        if self.batches.is_empty() {
            self.update();
        }
        let Some(first) = self.batches.front_mut() else { return false };
        let received = first.receive(reply, stamp);
        if first.is_complete()
            && let Some(complete) = self.batches.pop_front()
        {
            self.answered += 1;
            complete.finish();
        }
        received
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.queue.0.close(None);
        self.update();
        self.batches.drain(..).for_each(Pending::finish);
    }
}

/// Reads replies and hands them to whom they belong. Ends if the connection does, or if it is out of step.
async fn read(mut stream: OwnedReadHalf, queue: Closing) {
    let mut awaited = Awaited { queue, batches: VecDeque::new(), answered: 0 };
    let mut buffer = Vec::with_capacity(READ);
    loop {
        buffer.reserve(READ);
        if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
            return;
        }
        let mut done = 0;
        loop {
            match receive(&buffer[done..]) {
                Received::Part => break,
                Received::Strange => return,
                Received::Whole { reply, stamp, size } => {
                    done += size;
                    if !awaited.receive(reply, stamp) {
                        return;
                    }
                }
            }
        }
        awaited.update();
        buffer.drain(..done);
    }
}
