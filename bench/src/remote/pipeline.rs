//! A hand-written connection to Memcached, which all tasks share, and which does not wait for replies before it writes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// The replies to two commands: a number, or nothing.
type Replies = [Option<u64>; 2];

type Waiting = Arc<Mutex<VecDeque<oneshot::Sender<Replies>>>>;

/// The connection.
pub(super) struct Pipeline {
    queue: mpsc::UnboundedSender<(String, oneshot::Sender<Replies>)>,
}

impl Pipeline {
    pub(super) async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let (queue, jobs) = mpsc::unbounded_channel();
        let waiting = Waiting::default();
        tokio::spawn(write(writer, jobs, waiting.clone()));
        tokio::spawn(read(reader, waiting));
        Ok(Self { queue })
    }

    /// Sends two commands.
    pub(super) async fn ask(&self, commands: String) -> Result<Replies> {
        let (answer, replies) = oneshot::channel();
        self.queue.send((commands, answer)).ok().context("the connection is closed")?;
        replies.await.context("the connection has broken")
    }
}

/// Writes all pending commands at once.
async fn write(
    mut writer: OwnedWriteHalf,
    mut jobs: mpsc::UnboundedReceiver<(String, oneshot::Sender<Replies>)>,
    waiting: Waiting,
) -> std::io::Result<()> {
    let (mut batch, mut buffer) = (Vec::new(), Vec::new());
    while jobs.recv_many(&mut batch, 1_024).await > 0 {
        buffer.clear();
        waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(batch.drain(..).map(
            |(commands, answer)| {
                buffer.extend_from_slice(commands.as_bytes());
                answer
            },
        ));
        writer.write_all(&buffer).await?;
    }
    Ok(())
}

/// Reads replies, and passes them to the callers in order.
async fn read(reader: OwnedReadHalf, waiting: Waiting) -> Result<()> {
    let mut reader = BufReader::with_capacity(64 * 1_024, reader);
    let mut line = Vec::new();
    loop {
        let replies = [reply(&mut reader, &mut line).await?, reply(&mut reader, &mut line).await?];
        let first = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        // The caller may have given up.
        let _ = first.context("nobody has asked")?.send(replies);
    }
}

async fn reply(reader: &mut BufReader<OwnedReadHalf>, line: &mut Vec<u8>) -> Result<Option<u64>> {
    line.clear();
    reader.read_until(b'\n', line).await?;
    let text = std::str::from_utf8(line)?.trim_end();
    if matches!(text, "EN" | "NF") {
        return Ok(None);
    }
    let size = text.strip_prefix("VA ").with_context(|| format!("the server says {text:?}"))?;
    let size: usize = size.split(' ').next().unwrap_or_default().parse()?;
    line.resize(size + 2, 0);
    reader.read_exact(line).await?;
    Ok(Some(std::str::from_utf8(line)?.trim_end().parse()?))
}
