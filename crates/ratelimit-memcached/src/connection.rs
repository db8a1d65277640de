//! One connection to one server, shared by callers and dialled anew when it has broken or fallen silent.
//!
//! Callers' batches are written one after another without waiting for answers, and answers are read as they come: a big batch
//! cannot block itself, and many callers need one connection.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memcache::exp::{AsyncMetaConnection, Error, MetaCommand, MetaResponse};
use ratelimit_core::ErrorKind;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::wire::{Reply, is_refusal};

/// How many batches may wait to be written before callers wait themselves.
const QUEUE: usize = 1_024;

/// As much as is written at once.
const WRITE: usize = 64 * 1024;

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
    payload: Vec<u8>,
    /// Set before its first byte is written.
    sent: Arc<AtomicBool>,
    pending: Pending,
}

/// A batch whose replies are awaited.
struct Pending {
    number: u64,
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
    pub(crate) async fn send(&self, commands: &[MetaCommand], deadline: Instant) -> Replies {
        let exchange = async {
            let (payload, number) = encode(commands)?;
            match self.exchange(&payload, number, commands.len(), deadline).await? {
                Some(replies) => Ok(replies),
                None => {
                    let replies = self.exchange(&payload, number, commands.len(), deadline).await?;
                    replies.ok_or_else(Failure::broken)
                }
            }
        };
        match exchange.await {
            Ok(replies) => replies
                .into_iter()
                .map(|reply: Result<_, Failure>| reply.map_err(|failure| failure.at(&self.address)))
                .collect(),
            Err(failure) => vec![Err(failure.at(&self.address)); commands.len()],
        }
    }

    /// `None` if the connection broke before a byte was written.
    async fn exchange(
        &self,
        payload: &[u8],
        number: u64,
        count: usize,
        deadline: Instant,
    ) -> Result<Option<Replies>, Failure> {
        let wire = self.wire(deadline).await?;
        let sent = Arc::new(AtomicBool::new(false));
        let (answer, mut replies) = oneshot::channel();
        let pending = Pending { number, count, replies: Vec::new(), answer };
        let job = Job { payload: payload.to_vec(), sent: sent.clone(), pending };
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
        match (outcome, sent.load(Ordering::SeqCst)) {
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

/// The bytes of a batch, each command stamped with the batch's number and its place: a reply that carries another stamp tells that
/// the connection is out of step, and it is given up before a caller gets somebody else's reply.
fn encode(commands: &[MetaCommand]) -> Result<(Vec<u8>, u64), Failure> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut payload = Vec::with_capacity(commands.len() * 64);
    for (place, command) in commands.iter().enumerate() {
        let stamped = command.clone().flag(stamp(number, place));
        let invalid = |_| Failure::new(ErrorKind::Unsupported, "a key is not valid");
        stamped.encode_into(&mut payload).map_err(invalid)?;
    }
    Ok((payload, number))
}

fn stamp(number: u64, place: usize) -> String {
    format!("O{number:x}.{place:x}")
}

impl Wire {
    async fn dial(address: &str) -> Result<Self, Failure> {
        let failure = |error: std::io::Error| Failure::from_transport(&Error::Io(error));
        let stream = TcpStream::connect(address).await.map_err(failure)?;
        stream.set_nodelay(true).map_err(failure)?;
        // Two handles on one socket: the library's connection reads, and answers may come while a batch is being written.
        let stream = stream.into_std().map_err(failure)?;
        let writer = stream.try_clone().and_then(TcpStream::from_std).map_err(failure)?;
        let reader = AsyncMetaConnection::from_stream(TcpStream::from_std(stream).map_err(failure)?);
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
async fn write(mut stream: TcpStream, mut queue: mpsc::Receiver<Job>, pending: &Mutex<VecDeque<Pending>>) {
    let mut buffer = Vec::new();
    let mut waiting = Vec::new();
    while let Some(first) = queue.recv().await {
        // Lets the reader see that the server has hung up meanwhile, and other callers join.
        waiting.push(first);
        tokio::task::yield_now().await;
        let mut size = 0;
        while size < WRITE
            && let Ok(job) = queue.try_recv()
        {
            size += job.payload.len();
            waiting.push(job);
        }
        buffer.clear();
        for job in waiting.drain(..) {
            job.sent.store(true, Ordering::SeqCst);
            if job.pending.answer.is_closed() {
                continue; // nobody waits any more
            }
            buffer.extend_from_slice(&job.payload);
            pending.lock().unwrap_or_else(PoisonError::into_inner).push_back(job.pending);
        }
        if stream.write_all(&buffer).await.is_err() {
            return;
        }
    }
}

/// Reads replies and hands them to whom they belong. Ends if the connection does, or if it is out of step.
async fn read(mut connection: AsyncMetaConnection, pending: &Mutex<VecDeque<Pending>>) {
    loop {
        let reply = match connection.receive().await {
            Ok(response) => Ok(response),
            Err(error) if is_refusal(&error) => Err(Failure::from_refusal(&error)),
            Err(_) => return,
        };
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = pending.front_mut() else { return };
        let reply = match reply {
            Ok(response) if !belongs(&response, first) => return,
            Ok(response) => Reply::new(response),
            Err(failure) => Err(failure),
        };
        first.replies.push(reply);
        if first.replies.len() == first.count
            && let Some(done) = pending.pop_front()
        {
            // Who has dropped the call needs no answer.
            let _ = done.answer.send(done.replies);
        }
    }
}

fn belongs(response: &MetaResponse, pending: &Pending) -> bool {
    let expected = stamp(pending.number, pending.replies.len());
    response.flags().any(|flag| flag == expected.as_bytes())
}

impl Pending {
    /// The connection ended before the last reply: what is known is told, the rest may have been done or not.
    fn give_up(mut self) {
        self.replies.resize(self.count, Err(Failure::broken().maybe_applied()));
        let _ = self.answer.send(self.replies);
    }
}
