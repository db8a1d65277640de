//! The byte stream to a server: TCP, TLS or a Unix socket, with a count of the bytes that pass.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use ratelimit_store_kit::tcp;
use redis::io::tcp::socket2::SockRef;
use redis::{ConnectionAddr, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use ratelimit_core::StoreError;

use crate::config::RedisConfig;
use crate::config::node_address::NodeAddress;
use crate::error::{self, ERRORS};

pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// How many bytes have passed through a socket.
#[derive(Default)]
pub(crate) struct Traffic {
    written: AtomicU64,
    read: AtomicU64,
}

/// How many bytes had been written and read at some time.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) written: u64,
    pub(crate) read: u64,
}

impl Traffic {
    pub(crate) fn passed(&self) -> Passed {
        Passed { written: self.written(), read: self.read() }
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }
}

/// A socket that checks for a closed connection before it writes, and counts the bytes that pass.
///
/// A request of which no byte has been written was certainly not executed, so it can be sent again. Without the check, the
/// first write to a connection that the server has closed, for example by a restart, would succeed, and the failure would
/// be reported only later.
struct Socket<S> {
    stream: S,
    handle: fn(&S) -> SockRef<'_>,
    traffic: Arc<Traffic>,
}

impl<S> Socket<S> {
    /// Fails if the server has closed the connection.
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
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.traffic.read.fetch_add((buf.filled().len() - before) as u64, Ordering::SeqCst);
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.look()?;
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(number)) = &result {
            self.traffic.written.fetch_add(*number as u64, Ordering::SeqCst);
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

/// Opens streams to one address.
#[derive(Clone)]
pub(crate) struct Opener {
    address: ConnectionAddr,
    #[cfg(feature = "tls")]
    tls: Option<crate::servers::tls::Tls>,
}

impl Opener {
    pub(crate) fn new(address: &ConnectionAddr, config: &RedisConfig) -> Result<Self, StoreError> {
        let has_tls = matches!(address, ConnectionAddr::TcpTls { .. });
        // The client library accepts the address if another crate of the program has enabled its TLS.
        #[cfg(not(feature = "tls"))]
        if has_tls {
            return Err(ERRORS.misconfigured(error::WITHOUT_TLS));
        }
        if !has_tls && let Some(message) = config.certificates().without_tls("`rediss`") {
            return Err(ERRORS.misconfigured(message));
        }
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: if has_tls { Some(crate::servers::tls::Tls::new(config)?) } else { None },
            address: address.clone(),
        })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// An opener with the same options for the server at `place`.
    pub(crate) fn towards(&self, place: &NodeAddress) -> Self {
        let mut other = self.clone();
        match &mut other.address {
            ConnectionAddr::TcpTls { host, port, .. } => (*host, *port) = (place.host.clone(), place.port),
            address => *address = ConnectionAddr::Tcp(place.host.clone(), place.port),
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut other.tls {
            tls.set_name(place.name.clone());
        }
        other
    }

    /// Whether it connects to `place` and expects the certificate of the server there.
    pub(crate) fn leads_to(&self, place: &NodeAddress) -> bool {
        #[cfg(feature = "tls")]
        if let (Some(tls), Some(name)) = (&self.tls, &place.name)
            && tls.name() != Some(name)
        {
            return false;
        }
        match &self.address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host, port) == (&place.host, &place.port)
            }
            _ => false,
        }
    }

    /// Explains an error that ended an open connection before the server has answered.
    pub(crate) fn explain(&self, error: RedisError) -> StoreError {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.explain(error);
        }
        error::from_redis(error)
    }

    /// Opens a stream that counts in `traffic`.
    pub(crate) async fn open(&self, traffic: Arc<Traffic>) -> Result<Box<dyn Bytes>, StoreError> {
        let failed = |error: io::Error| error::from_redis(error.into());
        match &self.address {
            ConnectionAddr::Tcp(host, port) => {
                Ok(Box::new(connect(host, *port, traffic).await.map_err(failed)?))
            }
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                let stream = connect(host, *port, traffic).await.map_err(failed)?;
                match &self.tls {
                    Some(tls) => {
                        let encrypted = tls.connector().connect(tls.certified_name(host), stream).await;
                        Ok(Box::new(encrypted.map_err(|error| tls.explain(error.into()))?))
                    }
                    None => Err(failed(io::ErrorKind::Unsupported.into())),
                }
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(failed)?;
                Ok(Box::new(Socket { stream, handle: |stream| SockRef::from(stream), traffic }))
            }
            _ => Err(failed(io::ErrorKind::Unsupported.into())),
        }
    }
}

async fn connect(host: &str, port: u16, traffic: Arc<Traffic>) -> io::Result<Socket<TcpStream>> {
    let stream = tcp::connect(host, port).await?;
    Ok(Socket { stream, handle: |stream| SockRef::from(stream), traffic })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_need_an_encrypted_connection() {
        let some = || Some(b"certificate".to_vec());
        for url in ["redis://a", "redis+cluster://a,b", "redis+sentinel://a/name", "redis+unix:///a"] {
            let config = RedisConfig::from_url(url).unwrap();
            for config in [
                config.clone().authorities(some()),
                config.clone().client_certificate(some()),
                config.clone().client_key(some()),
            ] {
                let error = crate::RedisStore::lazy(config).expect_err(url);
                assert_eq!(error.kind(), ratelimit_core::ErrorKind::Misconfigured);
                assert!(error.to_string().contains("rediss"), "{error}");
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_needs_the_feature_of_this_crate() {
        let address =
            ConnectionAddr::TcpTls { host: "a".into(), port: 6379, insecure: false, tls_params: None };
        let config = RedisConfig::from_url("redis://a").unwrap();
        let error = Opener::new(&address, &config).err().expect("it accepts the address");
        assert_eq!(error.kind(), ratelimit_core::ErrorKind::Misconfigured);
        assert!(error.to_string().contains("enable the feature `tls`"), "{error}");
    }
}
