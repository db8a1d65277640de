//! TLS: whom to trust.

use std::sync::Arc;

use ratelimit_core::ErrorKind;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::Failure;

/// Connects to servers whose certificate one of `authorities` (PEM) has signed; without them, one that the machine trusts.
pub(crate) fn connector(authorities: Option<&[u8]>) -> Result<TlsConnector, Failure> {
    let bad = |what: &'static str| Failure::new(ErrorKind::Unsupported, what);
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate =
                    certificate.map_err(|_| bad("`authorities` holds no certificates in PEM form"))?;
                roots.add(certificate).map_err(|_| bad("a certificate in `authorities` cannot be read"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(bad(
            "no certificate authority to trust: give `authorities`, or install those of the system",
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_| bad("this build of rustls has no protocol version in common with anybody"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
