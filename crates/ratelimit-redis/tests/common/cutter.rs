//! A proxy in front of a server that closes a connection in the middle of a reply.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Cutter {
    pub(crate) port: u16,
    /// How many bytes of the next reply pass; all if it is the maximum.
    bytes: Arc<AtomicUsize>,
}

impl Cutter {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let bytes = Arc::new(AtomicUsize::new(usize::MAX));
        tokio::spawn(accept(listener, server, bytes.clone()));
        Self { port, bytes }
    }

    pub(crate) fn cut_after(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::SeqCst);
    }

    pub(crate) fn pass(&self) {
        self.cut_after(usize::MAX);
    }
}

async fn accept(listener: TcpListener, server: u16, bytes: Arc<AtomicUsize>) {
    while let Ok((client, _)) = listener.accept().await {
        let bytes = bytes.clone();
        tokio::spawn(async move {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let replies = async {
                let mut buffer = vec![0; 64 * 1024];
                loop {
                    let length = from_server.read(&mut buffer).await.unwrap_or(0);
                    let passing = length.min(bytes.load(Ordering::SeqCst));
                    if to_client.write_all(&buffer[..passing]).await.is_err()
                        || passing < length
                        || length == 0
                    {
                        return;
                    }
                }
            };
            tokio::select! {
                () = replies => {}
                _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
            }
        });
    }
}
