//! Encrypted connections, by rustls.

use std::fmt;
use std::io;
use std::sync::Arc;

use ratelimit_core::StoreError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{AlertDescription, ClientConfig, Error, RootCertStore};

use crate::{Certificates, Errors};

/// Encrypts the streams to servers, and checks that each server is the one that it should be.
///
/// ```no_run
/// use std::io;
///
/// use ratelimit_core::StoreError;
/// use ratelimit_store_kit::tls::TlsConnector;
/// use ratelimit_store_kit::{Certificates, Errors};
/// use tokio::io::{AsyncRead, AsyncWrite};
///
/// const ERRORS: Errors = Errors::new("mystore");
///
/// fn connector(authorities: Option<&[u8]>) -> Result<TlsConnector, StoreError> {
///     TlsConnector::new(&Certificates { authorities, ..Certificates::default() }, ERRORS)
/// }
///
/// async fn open(
///     connector: &TlsConnector,
///     stream: impl AsyncRead + AsyncWrite + Send + Unpin,
/// ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin> {
///     connector.connect("cache.internal", stream).await
/// }
/// ```
#[derive(Clone)]
pub struct TlsConnector {
    client: Arc<ClientConfig>,
    has_client_certificate: bool,
}

impl TlsConnector {
    /// A connector with these certificates. Without authorities it trusts the machine's.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if one of them is not valid, if the client's
    /// certificate and its key are not both there, or if there is no authority to trust.
    pub fn new(certificates: &Certificates<'_>, errors: Errors) -> Result<Self, StoreError> {
        let client = client(certificates).map_err(|message| errors.misconfigured(message))?;
        let has_client_certificate = certificates.client_certificate.is_some();
        Ok(Self { client: Arc::new(client), has_client_certificate })
    }

    /// Makes each connection begin a session of its own: for servers that break off resumed ones.
    #[must_use]
    pub fn without_resumption(mut self) -> Self {
        Arc::make_mut(&mut self.client).resumption = Resumption::disabled();
        self
    }

    /// Whether it has a certificate for servers that ask for one.
    pub fn has_client_certificate(&self) -> bool {
        self.has_client_certificate
    }

    /// Performs the handshake with a server, whose certificate must be for `host`. It has no time limit of its own.
    ///
    /// # Errors
    /// If a certificate cannot hold such a name ([`can_be_certified`]), or if the handshake fails; see [`failure_of`].
    pub async fn connect<S>(
        &self,
        host: &str,
        stream: S,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<S>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        tokio_rustls::TlsConnector::from(self.client.clone()).connect(name, stream).await
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector")
            .field("has_client_certificate", &self.has_client_certificate)
            .finish_non_exhaustive()
    }
}

/// Whether a certificate can be for this host: a name or an IP address.
///
/// ```
/// use ratelimit_store_kit::tls::can_be_certified;
///
/// assert!(can_be_certified("cache.internal") && can_be_certified("::1") && !can_be_certified("/run/socket"));
/// ```
pub fn can_be_certified(host: &str) -> bool {
    ServerName::try_from(host).is_ok()
}

/// Why TLS has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The server's certificate cannot be trusted, for this reason.
    ServerCertificate(String),
    /// The server does not accept the client's certificate, or misses one. It sent this alert.
    ClientCertificate(String),
    /// Another reason.
    Other,
}

/// Why TLS has failed, if it was TLS. `None` if the connection underneath has failed.
///
/// A server that misses the client's certificate may say so only with its first answer, when the handshake has succeeded; its
/// alert may be lost if it closes the connection with unread data.
///
/// ```
/// use std::io;
///
/// use ratelimit_store_kit::tls::failure_of;
///
/// assert_eq!(failure_of(&io::ErrorKind::ConnectionReset.into()), None);
/// ```
pub fn failure_of(error: &io::Error) -> Option<TlsFailure> {
    Some(match error.get_ref()?.downcast_ref()? {
        Error::InvalidCertificate(reason) => TlsFailure::ServerCertificate(reason.to_string()),
        Error::AlertReceived(alert) if is_about_certificates(*alert) => {
            TlsFailure::ClientCertificate(format!("{alert:?}"))
        }
        _ => TlsFailure::Other,
    })
}

/// The settings of rustls, or what is wrong with the certificates.
fn client(certificates: &Certificates<'_>) -> Result<ClientConfig, &'static str> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_| "this build of rustls has no protocol version in common with anybody")?
        .with_root_certificates(roots(certificates.authorities)?);
    match (certificates.client_certificate, certificates.client_key) {
        (Some(chain), Some(key)) => {
            let chain = all_in(chain).ok_or("`client_certificate` holds no certificates in PEM form")?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| "`client_key` holds no private key in PEM form")?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|_| "`client_key` does not belong to `client_certificate`")
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err("`client_certificate` and `client_key` must be set together"),
    }
}

/// The trusted authorities: these (PEM), or the machine's.
fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, &'static str> {
    let trusted = match authorities {
        Some(pem) => all_in(pem).ok_or("`authorities` holds no certificates in PEM form")?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (_, unreadable) = roots.add_parsable_certificates(trusted);
    if unreadable > 0 && authorities.is_some() {
        return Err("a certificate in `authorities` cannot be read");
    }
    if roots.is_empty() {
        return Err("no certificate authority to trust: give `authorities`, or install those of the system");
    }
    Ok(roots)
}

/// All certificates in `pem`, at least one.
fn all_in(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    certificates.ok().filter(|certificates| !certificates.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_with_a_bad_certificate() {
        let (pem, none) = (Some(&b"secret"[..]), Certificates::default());
        for (certificates, field) in [
            (Certificates { authorities: pem, ..none }, "`authorities`"),
            (Certificates { client_certificate: pem, client_key: pem, ..none }, "`client_certificate`"),
            (Certificates { client_key: pem, ..none }, "must be set together"),
        ] {
            let error = TlsConnector::new(&certificates, Errors::new("test"));
            let error = error.expect_err("an error").to_string();
            // On a machine without authorities, that error comes first.
            let expected = error.contains(field) || error.contains("no certificate authority");
            assert!(expected && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn failures_of_tls_are_told_from_those_of_the_connection() {
        let failure = |error: Error| failure_of(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert_eq!(
            failure(Error::AlertReceived(AlertDescription::CertificateRequired)),
            Some(TlsFailure::ClientCertificate("CertificateRequired".to_owned()))
        );
        let alert = Error::AlertReceived(AlertDescription::InternalError);
        assert_eq!(failure(alert), Some(TlsFailure::Other));
        assert_eq!(failure_of(&io::Error::other("the cable is cut")), None);
    }
}
