//! TLS: trusted authorities, client certificates, and what a server's refusal means.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};
use redis::RedisError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{AlertDescription, ClientConfig, Error, RootCertStore};

use crate::config::RedisConfig;
use crate::error;

/// How streams are encrypted.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    /// The name in the server's certificate, if it is not the host.
    name: Option<String>,
    has_certificate: bool,
}

impl Tls {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, StoreError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| {
                error::misconfigured("this build of rustls has no protocol version in common with anybody")
            })?
            .with_root_certificates(roots(config.authorities.as_deref())?);
        let client = match (&config.client_certificate, &config.client_key) {
            (Some(chain), Some(key)) => {
                let chain = certificates(chain, "`client_certificate` holds no certificates in PEM form")?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| error::misconfigured("`client_key` holds no private key in PEM form"))?;
                builder.with_client_auth_cert(chain, key).map_err(|_| {
                    error::misconfigured("`client_key` does not belong to `client_certificate`")
                })?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => {
                return Err(error::misconfigured(
                    "`client_certificate` and `client_key` must be set together",
                ));
            }
        };
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            name: None,
            has_certificate: config.client_certificate.is_some(),
        })
    }

    pub(crate) fn name(&self) -> Option<&String> {
        self.name.as_ref()
    }

    pub(crate) fn set_name(&mut self, name: Option<String>) {
        self.name = name;
    }

    /// Performs the handshake with the server at `host`, whose certificate must be for that host or the name that was set.
    pub(crate) async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(self.name.as_deref().unwrap_or(host).to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.connector.connect(name, stream).await
    }

    /// Explains an error that ended the connection before the server has answered.
    pub(crate) fn explain(&self, error: RedisError) -> StoreError {
        if !error.is_io_error() {
            return error::from_redis(error);
        }
        match cause(&error) {
            Some(Error::InvalidCertificate(reason)) => error::new(
                ErrorKind::Unreachable,
                format!("the server's certificate cannot be trusted: {reason}; see `authorities`"),
            ),
            Some(Error::AlertReceived(alert)) if is_about_certificates(*alert) && self.has_certificate => {
                error::new(
                    ErrorKind::Denied,
                    format!("the server does not accept the certificate in `client_certificate`: {alert:?}"),
                )
            }
            Some(Error::AlertReceived(alert)) if is_about_certificates(*alert) => error::new(
                ErrorKind::Denied,
                "the server asks for a certificate; set `client_certificate` to one that it accepts",
            ),
            // The alert may be lost when a server closes the connection with unread data.
            None if error.is_connection_dropped() => error::new(
                ErrorKind::Unreachable,
                "the server closed the connection before it answered; does it ask for a certificate (`client_certificate`)?",
            ),
            _ => error::from_redis(error),
        }
    }
}

/// The trusted authorities: `authorities` (PEM), or without them the machine's.
fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, StoreError> {
    let trusted = match authorities {
        Some(pem) => certificates(pem, "`authorities` holds no certificates in PEM form")?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (_, unreadable) = roots.add_parsable_certificates(trusted);
    if unreadable > 0 && authorities.is_some() {
        return Err(error::misconfigured("a certificate in `authorities` cannot be read"));
    }
    if roots.is_empty() {
        return Err(error::misconfigured(
            "no certificate authority to trust: give `authorities`, or install those of the system",
        ));
    }
    Ok(roots)
}

/// All certificates in `pem`, at least one.
fn certificates(pem: &[u8], or_else: &'static str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| error::misconfigured(or_else))
}

/// The error of rustls underneath.
fn cause(error: &RedisError) -> Option<&Error> {
    let source = error.source()?;
    // The client library wraps its errors in an `Arc`.
    let source = match source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref::<io::Error>()?,
        None => source.downcast_ref::<io::Error>()?,
    };
    source.get_ref()?.downcast_ref()
}

/// Whether this alert is about the client's certificate, or about a missing one.
fn is_about_certificates(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            // What servers send in TLS 1.2 if there is none.
            | Alert::HandshakeFailure
    )
}
