//! TLS at all doors, and certificates of clients.

use std::sync::Arc;

use ratelimit_server::Server;
use ratelimit_testbed::Certificates;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::support::*;

/// What connects to a server with these certificates; with the client's own, or without one.
fn connector(certificates: &Certificates, has_certificate: bool) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.authority()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = if has_certificate {
        let chain = vec![CertificateDer::from_pem_file(certificates.client()).unwrap()];
        let key = PrivateKeyDer::from_pem_file(certificates.client_key()).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// The answer to a PING.
async fn ping(connector: &TlsConnector, address: std::net::SocketAddr) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn all_doors_take_tls_only() {
    let certificates = Certificates::new().unwrap();
    let [certificate, key] = [("certificate", certificates.server()), ("key", certificates.server_key())]
        .map(|(name, path)| format!("--tls-{name}={}", path.display()));
    let started = Started::with(POLICIES, &[&certificate, &key, "--idle=5s"]).await;
    let connector = connector(&certificates, false);
    let addresses = started.server.addresses();
    assert_eq!(ping(&connector, addresses.redis.unwrap()).await.unwrap(), "+PONG\r\n");
    for address in [addresses.http, addresses.grpc] {
        let stream = TcpStream::connect(address.unwrap()).await.unwrap();
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    }
    let mut plain = Redis::connect(addresses.redis.unwrap()).await;
    plain.send(b"PING\r\n").await;
    assert!(!plain.rest().await.contains("PONG"));
}

#[tokio::test]
async fn only_clients_with_a_certificate_are_served() {
    let (certificates, others) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let options = [
        ("certificate", certificates.server()),
        ("key", certificates.server_key()),
        ("clients", certificates.authority()),
    ];
    let options = options.map(|(name, path)| format!("--tls-{name}={}", path.display()));
    let started = Started::with(POLICIES, &options.each_ref().map(String::as_str)).await;
    let address = started.server.addresses().redis.unwrap();
    assert_eq!(ping(&connector(&certificates, true), address).await.unwrap(), "+PONG\r\n");
    assert!(ping(&connector(&certificates, false), address).await.is_err());
    assert!(ping(&connector(&others, true), address).await.is_err());
    // A key of another certificate.
    let wrong = [&options[0], &format!("--tls-key={}", others.server_key().display())];
    let error = Server::start(args(&wrong.map(String::as_str))).await.unwrap_err();
    assert!(format!("{error:#}").contains("--tls-key does not belong"), "{error:#}");
}
