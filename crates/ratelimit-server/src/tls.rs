//! TLS at the doors, with client certificates if wanted.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::args::Args;

/// What accepts connections over TLS; `None` without a certificate.
pub(crate) fn acceptor(args: &Args) -> anyhow::Result<Option<TlsAcceptor>> {
    let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) else { return Ok(None) };
    let provider = Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match &args.tls_clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path, "--tls-clients")? {
                roots.add(authority).context("--tls-clients")?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.context("--tls-clients")?)
        }
    };
    let chain = certificates(certificate, "--tls-certificate")?;
    let key = PrivateKeyDer::from_pem_file(key).with_context(|| format!("--tls-key: {}", key.display()))?;
    let mut config =
        builder.with_single_cert(chain, key).context("--tls-key does not belong to --tls-certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// All certificates of a file, at least one.
fn certificates(path: &Path, option: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.with_context(|| format!("{option}: {}", path.display()))?;
    if all.is_empty() {
        bail!("{option}: {} holds no certificate in PEM form", path.display());
    }
    Ok(all)
}
