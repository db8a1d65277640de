//! Direct access to a server for tests, whatever its clients need for a connection.

use std::net::SocketAddr;
use std::path::PathBuf;

use ratelimit_testbed::{Memcached, Server};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// How to connect to a server.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
    socket: Option<PathBuf>,
    log_in: Option<String>,
}

impl Admin {
    /// For a server that was started with these settings.
    pub(crate) fn of(server: &Server, way: Option<&Memcached>) -> Self {
        let way = way.cloned().unwrap_or_default();
        let is_encrypted = way.certificates.is_some();
        Self {
            address: if is_encrypted { Memcached::without_tls(server) } else { server.address() },
            socket: way.socket,
            log_in: way.log_in.map(|(user, password)| format!("{user} {password}")),
        }
    }

    /// A connection, logged in.
    pub(crate) async fn connect(&self) -> std::io::Result<Box<dyn Bytes>> {
        let mut stream: Box<dyn Bytes> = match &self.socket {
            Some(path) => Box::new(UnixStream::connect(path).await?),
            None => Box::new(TcpStream::connect(self.address).await?),
        };
        if let Some(value) = &self.log_in {
            let command = format!("set x 0 0 {}\r\n{value}\r\n", value.len());
            stream.write_all(command.as_bytes()).await?;
            stream.read_exact(&mut [0; b"STORED\r\n".len()]).await?;
        }
        Ok(stream)
    }
}
