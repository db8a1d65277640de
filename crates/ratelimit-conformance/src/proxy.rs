//! A proxy before a server that counts how often a client waits for it.

use std::io;
use std::net::SocketAddr;
use std::ops::Sub;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How long an answer is held back. Whoever does not need it to go on has sent everything by then, so that what the
/// client sends in this time belongs to one request.
const HOLD: Duration = Duration::from_millis(60);

/// A proxy. Ends when it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    traffic: Arc<Mutex<Traffic>>,
    listener: JoinHandle<()>,
}

/// What has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Connections that were opened.
    pub(crate) connections: u64,
    /// Runs of bytes from the client, ended by an answer.
    pub(crate) requests: u64,
    /// Runs of bytes from the server.
    pub(crate) responses: u64,
    /// Bytes from the client.
    pub(crate) sent: u64,
    /// Bytes from the server.
    pub(crate) received: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// One connection's view: who spoke last.
#[derive(Clone)]
struct Meeting {
    last: Arc<Mutex<Side>>,
    traffic: Arc<Mutex<Traffic>>,
}

impl Proxy {
    /// A proxy that leads to `server`.
    pub(crate) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let listener = tokio::spawn(accept(listener, server, traffic.clone()));
        Ok(Self { address, traffic, listener })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has passed so far.
    pub(crate) fn traffic(&self) -> Traffic {
        *lock(&self.traffic)
    }

    /// Waits until nothing has passed for a while, and gives what has passed until then.
    pub(crate) async fn quiet(&self) -> Traffic {
        let mut seen = self.traffic();
        loop {
            tokio::time::sleep(HOLD * 3).await;
            let now = self.traffic();
            if now == seen {
                return now;
            }
            seen = now;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            connections: self.connections - earlier.connections,
            requests: self.requests - earlier.requests,
            responses: self.responses - earlier.responses,
            sent: self.sent - earlier.sent,
            received: self.received - earlier.received,
        }
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, traffic: Arc<Mutex<Traffic>>) {
    while let Ok((client, _)) = listener.accept().await {
        lock(&traffic).connections += 1;
        tokio::spawn(connect(client, server, traffic.clone()));
    }
}

async fn connect(client: TcpStream, server: SocketAddr, traffic: Arc<Mutex<Traffic>>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let meeting = Meeting { last: Arc::new(Mutex::new(Side::Server)), traffic };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        meeting.pump(Side::Client, from_client, to_server),
        meeting.pump(Side::Server, from_server, to_client),
    )?;
    Ok(())
}

impl Meeting {
    async fn pump(
        &self,
        side: Side,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let read = from.read(&mut buffer).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            if side == Side::Server {
                tokio::time::sleep(HOLD).await;
            }
            self.count(side, read as u64);
            to.write_all(&buffer[..read]).await?;
        }
    }

    fn count(&self, side: Side, bytes: u64) {
        let mut last = lock(&self.last);
        let mut traffic = lock(&self.traffic);
        let turn = u64::from(*last != side);
        *last = side;
        match side {
            Side::Client => {
                traffic.requests += turn;
                traffic.sent += bytes;
            }
            Side::Server => {
                traffic.responses += turn;
                traffic.received += bytes;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
