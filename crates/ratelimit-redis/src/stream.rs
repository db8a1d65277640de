//! The byte stream to a server: TCP, TLS or a Unix socket, with a count of what was written.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::ConnectionAddr;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::error::Failure;

/// Idle connections are probed, so that one whose other end has vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A socket that looks before it writes, and counts the bytes that it has written.
///
/// A request of which no byte has been written was surely not executed, and may be sent again. The look is what makes
/// that the rule after a restart of the server: a write into a connection that the other end has closed succeeds, and only
/// then fails.
struct Socket<S> {
    stream: S,
    handle: fn(&S) -> SockRef<'_>,
    written: Arc<AtomicU64>,
}

impl<S> Socket<S> {
    /// Fails if the other end has closed the connection.
    fn look(&self) -> io::Result<()> {
        match (self.handle)(&self.stream).peek(&mut [MaybeUninit::uninit()]) {
            Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.look()?;
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(number)) = &result {
            self.written.fetch_add(*number as u64, Ordering::SeqCst);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How streams to one address are opened.
#[derive(Clone)]
pub(crate) struct Opener {
    address: ConnectionAddr,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Opener {
    pub(crate) fn new(address: &ConnectionAddr, authorities: Option<&[u8]>) -> Result<Self, Failure> {
        #[cfg(not(feature = "tls"))]
        let _ = authorities;
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: match address {
                ConnectionAddr::TcpTls { .. } => Some(crate::tls::connector(authorities)?),
                _ => None,
            },
            address: address.clone(),
        })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The same way to another host.
    pub(crate) fn towards(&self, to_host: &str, to_port: u16) -> Self {
        let mut address = self.address.clone();
        match &mut address {
            ConnectionAddr::TcpTls { host, port, .. } => (*host, *port) = (to_host.to_owned(), to_port),
            other => *other = ConnectionAddr::Tcp(to_host.to_owned(), to_port),
        }
        let mut other = self.clone();
        other.address = address;
        other
    }

    /// A new stream, which counts in `written`.
    pub(crate) async fn open(&self, written: Arc<AtomicU64>) -> io::Result<Box<dyn Bytes>> {
        match &self.address {
            ConnectionAddr::Tcp(host, port) => Ok(Box::new(tcp(host, *port, written).await?)),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                let stream = tcp(host, *port, written).await?;
                let Some(tls) = &self.tls else {
                    return Err(io::ErrorKind::Unsupported.into());
                };
                let name = tokio_rustls::rustls::pki_types::ServerName::try_from(host.clone());
                let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                Ok(Box::new(tls.connect(name, stream).await?))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await?;
                Ok(Box::new(Socket { stream, handle: |stream| SockRef::from(stream), written }))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

async fn tcp(host: &str, port: u16, written: Arc<AtomicU64>) -> io::Result<Socket<TcpStream>> {
    let stream = TcpStream::connect((host, port)).await?;
    // Without it a small request waits for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
    Ok(Socket { stream, handle: |stream| SockRef::from(stream), written })
}

pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3)
}
