//! A proxy between some clients and a server, which cuts or stalls connections in the middle of an answer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are forwarded.
    Pass,
    /// Some connections are closed after a part of an answer.
    Cut { seed: u64 },
    /// Some connections forward a part of an answer, and then nothing while this lasts.
    Stall { seed: u64 },
}

/// One in this many chunks of answers is cut or stalls, on average.
const EACH: u32 = 5;

/// A proxy on the loopback interface.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of `server`.
    pub(crate) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (mode, watched) = watch::channel(Mode::Pass);
        let accepting = tokio::spawn(async move {
            let mut number = 0;
            // An error concerns one connection only.
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    number += 1;
                    tokio::spawn(forward(client, server, watched.clone(), number));
                }
            }
        });
        Ok(Self { address, mode, accepting })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens, also to open connections.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards until one side ends. Then both are closed.
async fn forward(client: TcpStream, server: SocketAddr, mode: watch::Receiver<Mode>, number: u64) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((mut from_client, to_client), (from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = answers(from_server, to_client, mode, number) => {}
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    number: u64,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut random = ChaCha8Rng::seed_from_u64(number);
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let now = *mode.borrow_and_update();
        let (Mode::Cut { seed } | Mode::Stall { seed }) = now else {
            to.write_all(&buffer[..length]).await?;
            continue;
        };
        random = ChaCha8Rng::seed_from_u64(random.random::<u64>() ^ seed);
        if !random.random_ratio(1, EACH) {
            to.write_all(&buffer[..length]).await?;
            continue;
        }
        let part = random.random_range(0..length);
        to.write_all(&buffer[..part]).await?;
        if matches!(now, Mode::Cut { .. }) {
            return Ok(());
        }
        // The rest comes late, or never.
        if mode.changed().await.is_err() || random.random_bool(0.5) {
            return Ok(());
        }
        to.write_all(&buffer[part..length]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each byte with eight.
    async fn server() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        let _ = stream.write_all(&[byte[0]; 8]).await;
                    }
                });
            }
        });
        address
    }

    /// Asks until an answer is not whole; returns how many bytes of it came.
    async fn ask(stream: &mut TcpStream) -> (usize, io::Result<usize>) {
        let mut answer = [0; 8];
        loop {
            stream.write_all(b"x").await.unwrap();
            let mut got = 0;
            while got < 8 {
                let read = stream.read(&mut answer[got..]);
                let within = std::time::Duration::from_millis(300);
                match tokio::time::timeout(within, read).await {
                    Ok(Ok(length)) if length > 0 => got += length,
                    Ok(end) => return (got, end),
                    Err(late) => return (got, Err(late.into())),
                }
            }
        }
    }

    #[tokio::test]
    async fn answers_are_cut_or_stall_in_the_middle() {
        let proxy = Proxy::start(server().await).await.unwrap();
        proxy.set(Mode::Cut { seed: 1 });
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let (got, end) = ask(&mut stream).await;
        assert!(got < 8 && end.as_ref().is_ok_and(|length| *length == 0), "{got} {end:?}");
        proxy.set(Mode::Stall { seed: 1 });
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let (got, end) = ask(&mut stream).await;
        assert!(
            got < 8 && end.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut),
            "{got} {end:?}"
        );
        proxy.set(Mode::Pass);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut [0; 8]).await.unwrap();
    }
}
