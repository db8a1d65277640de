//! A proxy that makes a server look far away.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// A proxy in front of a server that passes each reply on after a delay. It limits neither bandwidth nor pipelining.
pub struct SlowProxy {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl SlowProxy {
    /// Listens on a free port of the loopback interface until the runtime ends.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(server: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, accepted) = (listener.local_addr()?, Arc::<AtomicUsize>::default());
        let count = accepted.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(forward(client, server, delay));
            }
        });
        Ok(Self { address, accepted })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Forwards until one side closes its connection.
async fn forward(client: TcpStream, server: SocketAddr, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (arrived, mut replies) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let receive = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = from_server.read(&mut buffer).await?;
            if length == 0 || arrived.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                return Ok(());
            }
        }
    };
    let pass_on = async {
        while let Some((due, bytes)) = replies.recv().await {
            sleep_until(due).await;
            to_client.write_all(&bytes).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = tokio::io::copy(&mut from_client, &mut to_server) => ended.map(drop),
        ended = receive => ended,
        ended = pass_on => ended,
    }
}
