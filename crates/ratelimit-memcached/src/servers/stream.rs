//! The byte stream to a server: TCP, TLS or a Unix socket, after the handshake.

use std::io;
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, join};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
#[cfg(feature = "tls")]
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

use crate::config::MemcachedConfig;
use crate::config::address::Address;
use crate::error;
use crate::servers::handshake::Handshake;
use ratelimit_core::StoreError;

/// Idle connections are probed, so that no firewall forgets them and a lost peer is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Opens streams to one server.
pub(crate) struct Opener {
    address: Address,
    handshake: Handshake,
    /// With the name that the server's certificate has to be for.
    #[cfg(feature = "tls")]
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// An open stream.
pub(crate) struct Stream {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// For peeking at received bytes.
    pub(crate) socket: Socket,
    pub(crate) is_encrypted: bool,
}

impl Opener {
    /// One opener for each address.
    pub(crate) fn all(config: &MemcachedConfig, addresses: Vec<Address>) -> Result<Vec<Self>, StoreError> {
        let handshake = Handshake::new(config);
        #[cfg(feature = "tls")]
        let connector = if config.tls { Some(crate::servers::tls::connector(config)?) } else { None };
        let opener = |address: Address| {
            Ok(Self {
                handshake: handshake.clone(),
                #[cfg(feature = "tls")]
                tls: match &connector {
                    Some(connector) => Some((connector.clone(), name(&address)?)),
                    None => None,
                },
                address,
            })
        };
        addresses.into_iter().map(opener).collect()
    }

    /// The address that it connects to.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Opens a stream and performs the handshake.
    pub(crate) async fn open(&self) -> Result<Stream, StoreError> {
        let mut stream = self.connect().await?;
        self.handshake.perform(&mut join(&mut stream.reader, &mut stream.writer)).await?;
        Ok(stream)
    }

    async fn connect(&self) -> Result<Stream, StoreError> {
        let failure = |error: io::Error| error::from_io(&error);
        match &self.address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failure)?;
                stream.set_nodelay(true).map_err(failure)?;
                let socket = SockRef::from(&stream).try_clone().map_err(failure)?;
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
                socket.set_tcp_keepalive(&keepalive).map_err(failure)?;
                #[cfg(feature = "tls")]
                if let Some((connector, name)) = &self.tls {
                    let stream = connector.connect(name.clone(), stream).await;
                    let (reader, writer) = tokio::io::split(stream.map_err(|error| error::from_tls(&error))?);
                    return Ok(Stream::new(reader, writer, socket, true));
                }
                let (reader, writer) = stream.into_split();
                Ok(Stream::new(reader, writer, socket, false))
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(failure)?;
                let socket = SockRef::from(&stream).try_clone().map_err(failure)?;
                let (reader, writer) = stream.into_split();
                Ok(Stream::new(reader, writer, socket, false))
            }
            #[cfg(not(unix))]
            Address::Unix(_) => Err(failure(io::ErrorKind::Unsupported.into())),
        }
    }
}

impl Stream {
    fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        socket: Socket,
        is_encrypted: bool,
    ) -> Self {
        Self { reader: Box::new(reader), writer: Box::new(writer), socket, is_encrypted }
    }
}

#[cfg(feature = "tls")]
fn name(address: &Address) -> Result<ServerName<'static>, StoreError> {
    let host = match address {
        Address::Tcp { host, .. } => host.clone(),
        Address::Unix(path) => path.clone(),
    };
    let invalid = |_| {
        let message = "a server's host is not a name that a certificate can have";
        error::new(ratelimit_core::ErrorKind::Unsupported, message)
    };
    host.try_into().map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_are_probed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = MemcachedConfig::of(&listener.local_addr().unwrap().to_string());
        let addresses = crate::config::check::addresses(&config).unwrap();
        let stream = Opener::all(&config, addresses).unwrap()[0].connect().await.unwrap();
        assert!(stream.socket.keepalive().unwrap());
    }
}
