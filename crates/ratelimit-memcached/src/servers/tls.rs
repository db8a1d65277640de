//! TLS: trusted authorities and client certificates.

use std::sync::Arc;

use ratelimit_core::StoreError;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::MemcachedConfig;
use crate::error;

/// The TLS connector of a configuration.
pub(crate) fn connector(config: &MemcachedConfig) -> Result<TlsConnector, StoreError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_| {
            error::misconfigured("this build of rustls has no protocol version in common with anybody")
        })?
        .with_root_certificates(roots(config.authorities.as_deref())?);
    let mut client = match (&config.client_certificate, &config.client_key) {
        (Some(chain), Some(key)) => {
            let chain = certificates(chain, "`client_certificate` holds no certificates in PEM form")?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| error::misconfigured("`client_key` holds no private key in PEM form"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|_| error::misconfigured("`client_key` does not belong to `client_certificate`"))?
        }
        _ => builder.with_no_client_auth(),
    };
    // A server that asks for certificates breaks off resumed sessions, because it sets no "session id context" in OpenSSL.
    client.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(client)))
}

/// The trusted authorities: the given ones, or the machine's.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_with_a_bad_certificate() {
        let config = || MemcachedConfig::default().tls(true);
        let pem = || Some(b"secret".to_vec());
        for (config, field) in [
            (config().authorities(pem()), "`authorities`"),
            (config().client_certificate(pem()).client_key(pem()), "`client_certificate`"),
        ] {
            let error = connector(&config).err().expect("an error").to_string();
            // On a machine without authorities, that error comes first.
            let expected = error.contains(field) || error.contains("no certificate authority");
            assert!(expected && !error.contains("secret"), "{error}");
        }
    }
}
