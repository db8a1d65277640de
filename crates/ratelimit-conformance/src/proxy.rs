//! A proxy in front of a server that counts round trips.

use std::io;
use std::net::SocketAddr;
use std::ops::Sub;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How long the proxy delays an answer. A client that does not wait for the answer has sent everything by then, so the bytes
/// that it sends in this time belong to one request.
const HOLD: Duration = Duration::from_millis(60);

/// A proxy. When it is dropped, it accepts no more connections and releases held answers.
pub(crate) struct Proxy {
    address: SocketAddr,
    traffic: Arc<Mutex<Traffic>>,
    lost: Arc<AtomicUsize>,
    held: Arc<AtomicBool>,
    listener: JoinHandle<()>,
}

/// The observed traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The number of opened connections.
    pub(crate) connections: u64,
    /// Requests: runs of bytes from the client up to an answer.
    pub(crate) requests: u64,
    /// Responses: runs of bytes from the server.
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

/// The state of a connection.
#[derive(Clone)]
struct Meeting {
    last: Arc<Mutex<Side>>,
    traffic: Arc<Mutex<Traffic>>,
    /// The number of answers still to drop.
    lost: Arc<AtomicUsize>,
    /// Whether the proxy holds answers.
    held: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy for `server`.
    pub(crate) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let lost = Arc::new(AtomicUsize::new(0));
        let held = Arc::new(AtomicBool::new(false));
        let last = Arc::new(Mutex::new(Side::Server));
        let meeting = Meeting { last, traffic: traffic.clone(), lost: lost.clone(), held: held.clone() };
        let listener = tokio::spawn(accept(listener, server, meeting));
        Ok(Self { address, traffic, lost, held, listener })
    }

    /// The address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drops all further answers, or only the next one: the server sends it, and the connection breaks.
    pub(crate) fn lose_answers(&self, once: bool) {
        self.lost.store(if once { 1 } else { usize::MAX }, Ordering::SeqCst);
    }

    /// Stops dropping answers.
    pub(crate) fn lose_no_answers(&self) {
        self.lost.store(0, Ordering::SeqCst);
    }

    /// Holds answers, while their connections stay open.
    pub(crate) fn hold_answers(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    /// Releases held answers, and stops holding answers.
    pub(crate) fn let_answers_go(&self) {
        self.held.store(false, Ordering::SeqCst);
    }

    /// The traffic so far.
    pub(crate) fn traffic(&self) -> Traffic {
        *lock(&self.traffic)
    }

    /// Waits until there is no traffic for a while, and returns the traffic so far.
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
        self.let_answers_go();
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

async fn accept(listener: TcpListener, server: SocketAddr, meeting: Meeting) {
    while let Ok((client, _)) = listener.accept().await {
        lock(&meeting.traffic).connections += 1;
        let last = Arc::new(Mutex::new(Side::Server));
        tokio::spawn(connect(client, server, Meeting { last, ..meeting.clone() }));
    }
}

async fn connect(client: TcpStream, server: SocketAddr, meeting: Meeting) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
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
                self.lose()?;
                while self.held.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            self.count(side, read as u64);
            to.write_all(&buffer[..read]).await?;
        }
    }

    /// Breaks the connection if the current answer is to be dropped.
    fn lose(&self) -> io::Result<()> {
        let one_less = |left: usize| (left > 0).then(|| if left == usize::MAX { left } else { left - 1 });
        match self.lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
            Ok(_) => Err(io::ErrorKind::ConnectionAborted.into()),
            Err(_) => Ok(()),
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
