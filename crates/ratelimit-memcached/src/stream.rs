//! The byte stream to a server: TCP, TLS or a Unix socket, after the handshake.

use std::io;

use socket2::{SockRef, Socket};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::config::MemcachedConfig;
use crate::error;
use crate::handshake::Handshake;
use crate::url::Address;
use ratelimit_core::StoreError;

/// Opens streams to one server.
pub(crate) struct Opener {
    address: Address,
    handshake: Handshake,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

#[cfg(feature = "tls")]
struct Tls {
    connector: tokio_rustls::TlsConnector,
    name: tokio_rustls::rustls::pki_types::ServerName<'static>,
}

/// A stream, and its socket for peeking at received bytes.
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) socket: Socket,
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Opener {
    /// One opener for each address.
    pub(crate) fn all(config: &MemcachedConfig, addresses: Vec<Address>) -> Result<Vec<Self>, StoreError> {
        let handshake = Handshake::new(config);
        #[cfg(feature = "tls")]
        let connector = if config.tls { Some(crate::tls::connector(config)?) } else { None };
        let opener = |address: Address| {
            Ok(Self {
                handshake: handshake.clone(),
                #[cfg(feature = "tls")]
                tls: match &connector {
                    Some(connector) => Some(Tls { connector: connector.clone(), name: name(&address)? }),
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
    pub(crate) async fn open(&self) -> Result<Opened, StoreError> {
        let mut opened = self.connect().await?;
        match &mut opened.stream {
            Stream::Tcp(stream) => self.handshake.perform(stream).await?,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => self.handshake.perform(stream).await?,
            #[cfg(unix)]
            Stream::Unix(stream) => self.handshake.perform(stream).await?,
        }
        Ok(opened)
    }

    async fn connect(&self) -> Result<Opened, StoreError> {
        let failure = |error: io::Error| error::from_io(&error);
        match &self.address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failure)?;
                stream.set_nodelay(true).map_err(failure)?;
                let socket = SockRef::from(&stream).try_clone().map_err(failure)?;
                #[cfg(feature = "tls")]
                if let Some(Tls { connector, name }) = &self.tls {
                    let stream = connector.connect(name.clone(), stream).await;
                    let stream = stream.map_err(|error| error::from_tls(&error))?;
                    return Ok(Opened { stream: Stream::Tls(Box::new(stream)), socket });
                }
                Ok(Opened { stream: Stream::Tcp(stream), socket })
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(failure)?;
                let socket = SockRef::from(&stream).try_clone().map_err(failure)?;
                Ok(Opened { stream: Stream::Unix(stream), socket })
            }
            #[cfg(not(unix))]
            Address::Unix(_) => Err(failure(io::ErrorKind::Unsupported.into())),
        }
    }
}

/// The name that the server's certificate has to be for.
#[cfg(feature = "tls")]
fn name(address: &Address) -> Result<tokio_rustls::rustls::pki_types::ServerName<'static>, StoreError> {
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
