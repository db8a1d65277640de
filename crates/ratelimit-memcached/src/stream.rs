//! The byte stream to a server: TCP, TLS or a Unix socket, after the log-in.

use std::io;
use std::sync::Arc;

use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::config::MemcachedConfig;
use crate::error;
use crate::url::Address;
use ratelimit_core::StoreError;

/// The longest answer to a log-in.
const LONGEST_ANSWER: usize = 2_048;

/// Opens streams to one server.
pub(crate) struct Opener {
    address: Address,
    log_in: Option<Arc<[u8]>>,
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
        let log_in = config.user.as_ref().map(|user| log_in(user, config.password.as_deref().unwrap_or("")));
        #[cfg(feature = "tls")]
        let connector = if config.tls { Some(crate::tls::connector(config)?) } else { None };
        let opener = |address: Address| {
            Ok(Self {
                log_in: log_in.clone(),
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

    /// Opens a stream and logs in.
    pub(crate) async fn open(&self) -> Result<Opened, StoreError> {
        let mut opened = self.connect().await?;
        if let Some(request) = &self.log_in {
            match &mut opened.stream {
                Stream::Tcp(stream) => authenticate(stream, request).await?,
                #[cfg(feature = "tls")]
                Stream::Tls(stream) => authenticate(stream, request).await?,
                #[cfg(unix)]
                Stream::Unix(stream) => authenticate(stream, request).await?,
            }
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

/// The command that logs in. A server without log-in stores it as an item that has expired already.
fn log_in(user: &str, password: &str) -> Arc<[u8]> {
    let size = user.len() + 1 + password.len();
    format!("set log-in 0 -1 {size}\r\n{user} {password}\r\n").into_bytes().into()
}

async fn authenticate(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
) -> Result<(), StoreError> {
    let answer = async {
        stream.write_all(request).await?;
        stream.flush().await?;
        let mut answer = Vec::with_capacity(64);
        while !answer.ends_with(b"\r\n") && answer.len() < LONGEST_ANSWER {
            if stream.read_buf(&mut answer).await? == 0 {
                return io::Result::Ok(None);
            }
        }
        Ok(Some(answer))
    };
    match answer.await {
        Ok(Some(answer)) if answer == b"STORED\r\n" => Ok(()),
        Ok(Some(answer)) => Err(error::from_log_in(&String::from_utf8_lossy(&answer))),
        Ok(None) => Err(error::unanswered()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(error::unanswered()),
        Err(error) => Err(error::from_stream(&error)),
    }
}
