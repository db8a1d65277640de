//! One connection to one server, shared by callers and dialled anew when it has broken or fallen silent.
//!
//! Callers' batches are written one after another without waiting for answers, and answers are read as they come: a big batch
//! cannot block itself, and many callers need one connection.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::ErrorKind;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::reply::{Received, Reply, Stamp, receive};
use crate::wire::Command;

/// How many batches may wait to be written before callers wait themselves.
const QUEUE: usize = 1_024;

/// As much as is written at once.
const WRITE: usize = 64 * 1024;

/// What is read at once, at least.
const READ: usize = 16 * 1024;

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
            self.bytes.reserve(256);
        }
        command.encode(self.stamp.wrapping_add(self.count as u64), &mut self.bytes);
        self.count += 1;
        self.before + self.count - 1
    }
}

/// What came of each command of a batch.
pub(crate) type Replies = Vec<Result<Reply, Failure>>;

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
    jobs: mpsc::Sender<Job>,
    driver: tokio::task::JoinHandle<()>,
}

/// A batch on its way out.
struct Job {
    out: Arc<Out>,
    pending: Pending,
}

/// What is to be written, and whether that has begun.
struct Out {
    bytes: Vec<u8>,
    /// Set before the first byte is written.
    sent: AtomicBool,
}

/// A batch whose replies are awaited.
struct Pending {
    stamp: u64,
    count: usize,
    replies: Replies,
    answer: oneshot::Sender<Replies>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
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
    pub(crate) async fn send(&self, commands: Commands, deadline: Instant) -> Replies {
        let Commands { count, stamp, bytes, .. } = commands;
        let out = Arc::new(Out { bytes, sent: AtomicBool::new(false) });
        let exchange = async {
            match self.exchange(&out, stamp, count, deadline).await? {
                Some(replies) => Ok(replies),
                None => self.exchange(&out, stamp, count, deadline).await?.ok_or_else(Failure::broken),
            }
        };
        let mut replies = exchange.await.unwrap_or_else(|failure| vec![Err(failure); count]);
        for reply in &mut replies {
            if let Err(failure) = reply {
                *failure = failure.clone().at(&self.address);
            }
        }
        replies
    }

    /// `None` if the connection broke before a byte was written.
    async fn exchange(
        &self,
        out: &Arc<Out>,
        stamp: u64,
        count: usize,
        deadline: Instant,
    ) -> Result<Option<Replies>, Failure> {
        let wire = self.wire(deadline).await?;
        let (answer, mut replies) = oneshot::channel();
        let pending = Pending { stamp, count, replies: Vec::with_capacity(count), answer };
        let job = Job { out: out.clone(), pending };
        let exchange = async {
            wire.jobs.send(job).await.ok()?;
            (&mut replies).await.ok()
        };
        let outcome = timeout_at(deadline, exchange).await;
        if let Ok(Some(replies)) = outcome {
            return Ok(Some(replies));
        }
        // Closed first: the writer says that it sends before it looks whether anybody still waits.
        replies.close();
        self.hang_up(&wire);
        match (outcome, out.sent.load(Ordering::SeqCst)) {
            (Ok(_), false) => Ok(None),
            (Ok(_), true) => Err(Failure::broken().maybe_applied()),
            (Err(_), false) => Err(Failure::late()),
            (Err(_), true) => Err(Failure::late().maybe_applied()),
        }
    }

    /// The connection in use, or a new one.
    async fn wire(&self, deadline: Instant) -> Result<Arc<Wire>, Failure> {
        if let Some(wire) = self.open_wire() {
            return Ok(wire);
        }
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
        current.as_ref().filter(|wire| !wire.jobs.is_closed()).cloned()
    }

    /// Forgets this connection, unless a newer one has taken its place.
    fn hang_up(&self, wire: &Arc<Wire>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|held| Arc::ptr_eq(held, wire)) {
            *current = None;
        }
    }
}

impl Wire {
    async fn dial(address: &str) -> Result<Self, Failure> {
        let failure = |error: std::io::Error| Failure::from_io(&error);
        let stream = TcpStream::connect(address).await.map_err(failure)?;
        stream.set_nodelay(true).map_err(failure)?;
        // Answers may come while a batch is being written.
        let (reader, writer) = stream.into_split();
        let (jobs, queue) = mpsc::channel(QUEUE);
        let driver = tokio::spawn(async move {
            let pending = Mutex::new(VecDeque::new());
            tokio::select! {
                biased;
                () = read(reader, &pending) => {}
                () = write(writer, queue, &pending) => {}
            }
            pending
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)
                .into_iter()
                .for_each(Pending::give_up);
        });
        Ok(Self { jobs, driver })
    }
}

/// Writes batches as they come, those that wait together at once. Ends if the connection does.
async fn write(
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Job>,
    pending: &Mutex<VecDeque<Pending>>,
) {
    let mut buffer = Vec::new();
    let mut waiting = Vec::new();
    while let Some(first) = queue.recv().await {
        waiting.push(first);
        let idle = pending.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if idle && has_hung_up(stream.as_ref()) {
            return;
        }
        if !idle {
            // The server is busy with others: whoever is about to ask can join.
            tokio::task::yield_now().await;
        }
        let mut size = 0;
        while size < WRITE
            && let Ok(job) = queue.try_recv()
        {
            size += job.out.bytes.len();
            waiting.push(job);
        }
        buffer.clear();
        for Job { out, pending: asked } in waiting.drain(..) {
            out.sent.store(true, Ordering::SeqCst);
            if asked.answer.is_closed() {
                continue; // nobody waits any more
            }
            buffer.extend_from_slice(&out.bytes);
            pending.lock().unwrap_or_else(PoisonError::into_inner).push_back(asked);
        }
        if stream.write_all(&buffer).await.is_err() {
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

/// Reads replies and hands them to whom they belong. Ends if the connection does, or if it is out of step.
async fn read(mut stream: OwnedReadHalf, pending: &Mutex<VecDeque<Pending>>) {
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
                    if !hand_over(pending, reply, stamp) {
                        return;
                    }
                }
            }
        }
        buffer.drain(..done);
    }
}

/// Gives a reply to the batch that has waited longest; `false` if it is not its.
fn hand_over(pending: &Mutex<VecDeque<Pending>>, reply: Result<Reply, Failure>, stamp: Stamp) -> bool {
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(first) = pending.front_mut() else { return false };
    let expected = first.stamp.wrapping_add(first.replies.len() as u64);
    if stamp != Stamp::None && stamp != Stamp::Of(expected) {
        return false;
    }
    first.replies.push(reply);
    if first.replies.len() == first.count
        && let Some(done) = pending.pop_front()
    {
        // Who has dropped the call needs no answer.
        let _ = done.answer.send(done.replies);
    }
    true
}

impl Pending {
    /// The connection ended before the last reply: what is known is told, the rest may have been done or not.
    fn give_up(mut self) {
        self.replies.resize(self.count, Err(Failure::broken().maybe_applied()));
        let _ = self.answer.send(self.replies);
    }
}
