//! The byte stream to a server: TCP, TLS or a Unix socket, after the handshake.

use std::io;

use ratelimit_store_kit::tcp;
#[cfg(feature = "tls")]
use ratelimit_store_kit::tls::{TlsConnector, can_be_certified};
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite, join};
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::config::MemcachedConfig;
use crate::config::address::Address;
use crate::error;
use crate::servers::handshake::Handshake;
use ratelimit_core::StoreError;

/// Opens streams to one server.
pub(crate) struct Opener {
    address: Address,
    handshake: Handshake,
    #[cfg(feature = "tls")]
    tls: Option<TlsConnector>,
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
        let tls = if config.tls { Some(connector(config, &addresses)?) } else { None };
        let opener = |address: Address| Self {
            handshake: handshake.clone(),
            #[cfg(feature = "tls")]
            tls: tls.clone(),
            address,
        };
        Ok(addresses.into_iter().map(opener).collect())
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
                let stream = tcp::connect(host, *port).await.map_err(failure)?;
                let socket = SockRef::from(&stream).try_clone().map_err(failure)?;
                #[cfg(feature = "tls")]
                if let Some(connector) = &self.tls {
                    let stream = connector.connect(host, stream).await;
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

/// Encrypts the streams to servers that have these addresses.
#[cfg(feature = "tls")]
fn connector(config: &MemcachedConfig, addresses: &[Address]) -> Result<TlsConnector, StoreError> {
    let connector = TlsConnector::new(&config.certificates(), error::ERRORS)?;
    let is_named = |address: &Address| matches!(address, Address::Tcp { host, .. } if can_be_certified(host));
    if !addresses.iter().all(is_named) {
        let message = "a server's host is not a name that a certificate can have";
        return Err(error::ERRORS.of(ratelimit_core::ErrorKind::Unsupported, message));
    }
    // A server that asks for certificates breaks off resumed sessions, because it sets no "session id context" in OpenSSL.
    Ok(connector.without_resumption())
}
