//! The two tasks of a connection: one writes batches, the other reads replies.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

use socket2::Socket;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::AbortHandle;

use crate::error;
use crate::servers::queue::{Pending, Queue};
#[cfg(feature = "tls")]
use crate::servers::records::first_piece;
use crate::servers::stream::Stream;
use crate::wire::reply::{Received, Reply, Stamp, receive};
use ratelimit_core::{ErrorKind, StoreError};

/// The minimum number of bytes to read with one call.
const READ: usize = 16 * 1024;

/// The capacity that the write buffer keeps.
const KEPT: usize = 256 * 1024;

/// Starts both tasks. There are two because replies may arrive while a batch is being written.
pub(crate) fn start(stream: Stream, queue: &Arc<Queue>) -> [AbortHandle; 2] {
    let Stream { reader, writer, socket, is_encrypted } = stream;
    let transport = Transport { socket, is_encrypted };
    [
        tokio::spawn(read(reader, Closing(queue.clone()))).abort_handle(),
        tokio::spawn(write(writer, transport, Closing(queue.clone()))).abort_handle(),
    ]
}

/// Ends the other task when this one ends for any reason, including the shutdown of its runtime.
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(None, error::broken());
    }
}

/// Writes batches as they arrive, all waiting ones together. Ends when the connection ends.
async fn write(mut stream: impl AsyncWrite + Unpin, transport: Transport, queue: Closing) {
    let Closing(queue) = &queue;
    let mut buffer = Vec::new();
    loop {
        queue.work().await;
        if queue.is_idle() {
            if transport.has_hung_up(queue).await {
                return;
            }
        } else {
            // The server is busy with earlier batches, so callers that are about to send can join.
            tokio::task::yield_now().await;
        }
        buffer.clear();
        buffer.shrink_to(KEPT);
        if !queue.take(&mut buffer) {
            return;
        }
        let written = tokio::select! {
            biased;
            written = transport.send(&mut stream, &buffer) => written.is_ok(),
            () = queue.end() => false,
        };
        if !written {
            return;
        }
    }
}

/// The socket that a connection uses.
struct Transport {
    socket: Socket,
    is_encrypted: bool,
}

impl Transport {
    async fn send(&self, stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if self.is_encrypted {
            let mut rest = bytes;
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(first_piece(rest));
                stream.write_all(piece).await?;
                stream.flush().await?;
                rest = behind;
            }
            return Ok(());
        }
        stream.write_all(bytes).await
    }

    /// Whether the server has closed a connection without pending replies, even if the runtime has not noticed yet. Batches
    /// that are not sent then can be sent on a new connection.
    async fn has_hung_up(&self, queue: &Queue) -> bool {
        loop {
            match self.socket.peek(&mut [MaybeUninit::uninit()]) {
                // These bytes belong to TLS. The reader is about to take them, and detects a close after them.
                Ok(1..) if self.is_encrypted && !queue.is_closed() => tokio::task::yield_now().await,
                Ok(_) => return true,
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// The batches whose replies are pending. They fail when this is dropped.
struct PendingReplies {
    queue: Closing,
    batches: VecDeque<Pending>,
    /// The number of batches answered since the last update of the queue.
    answered: usize,
    /// Why the connection was closed; the failure of missing replies.
    end: StoreError,
}

impl PendingReplies {
    /// Updates the queue, and takes the batches sent since then.
    fn update(&mut self) {
        self.queue.0.answered(std::mem::take(&mut self.answered), &mut self.batches);
    }

    /// Hands a reply to the oldest batch; `false` if the reply does not belong to it.
    fn receive(&mut self, reply: Result<Reply, StoreError>, stamp: Stamp) -> bool {
        if self.batches.is_empty() {
            self.update();
        }
        let Some(first) = self.batches.front_mut() else { return false };
        let received = first.receive(reply, stamp);
        if first.is_complete()
            && let Some(complete) = self.batches.pop_front()
        {
            self.answered += 1;
            complete.finish(&self.end);
        }
        received
    }
}

impl Drop for PendingReplies {
    fn drop(&mut self) {
        self.queue.0.close(None, self.end.clone());
        self.update();
        self.batches.drain(..).for_each(|batch| batch.finish(&self.end));
    }
}

/// Reads replies and hands them to their batches. Ends when the connection ends, or when a reply does not match its
/// command.
async fn read(mut stream: impl AsyncRead + Unpin, queue: Closing) {
    let end = error::broken().maybe_applied();
    let mut awaited = PendingReplies { queue, batches: VecDeque::new(), answered: 0, end };
    let mut buffer = Vec::with_capacity(READ);
    let mut has_answered = false;
    loop {
        buffer.reserve(READ);
        match stream.read_buf(&mut buffer).await {
            Ok(1..) => awaited.queue.0.note_read(),
            Ok(0) if has_answered => return,
            Ok(0) => return awaited.end = error::unanswered().maybe_applied(),
            Err(error) if !has_answered && error.kind() == io::ErrorKind::ConnectionReset => {
                return awaited.end = error::unanswered().maybe_applied();
            }
            Err(error) => return awaited.end = error::from_stream(&error).maybe_applied(),
        }
        let mut done = 0;
        loop {
            match receive(&buffer[done..]) {
                Received::Part => break,
                Received::Strange => return awaited.end = error::strange_response(),
                // Before the log-in the server executes nothing, and does not answer each command.
                Received::Whole { reply: Err(failure), .. } if failure.kind() == ErrorKind::Denied => {
                    return awaited.end = failure;
                }
                Received::Whole { reply, stamp, size } => {
                    done += size;
                    has_answered = true;
                    if !awaited.receive(reply, stamp) {
                        return awaited.end = error::strange_response();
                    }
                }
            }
        }
        awaited.update();
        buffer.drain(..done);
    }
}
