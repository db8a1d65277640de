//! Servers that accept only TLS.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Certificates;

/// The TLS options of a server.
///
/// A server with them is always a process on this machine, because a container cannot see the files.
#[derive(Clone)]
pub struct Tls {
    /// Its own certificate and key, also for connections to other servers, and the authority that it trusts.
    pub certificates: Arc<Certificates>,
    /// Whether clients have to present a certificate.
    pub asks_clients: bool,
    /// The name that a node of a cluster announces in addition to its address.
    pub hostname: Option<String>,
}

impl Tls {
    /// TLS with these certificates; clients need none.
    pub fn new(certificates: Certificates) -> Self {
        Self { certificates: Arc::new(certificates), asks_clients: false, hostname: None }
    }

    /// The arguments of a Redis server.
    pub(crate) fn arguments(&self, port: u16) -> Vec<String> {
        let files = &self.certificates;
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let options = [
            ("--port", "0".to_owned()),
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path(files.server())),
            ("--tls-key-file", path(files.server_key())),
            ("--tls-client-cert-file", path(files.client())),
            ("--tls-client-key-file", path(files.client_key())),
            ("--tls-ca-cert-file", path(files.authority())),
            ("--tls-auth-clients", if self.asks_clients { "yes" } else { "no" }.to_owned()),
            ("--tls-replication", "yes".to_owned()),
            ("--unixsocket", path(files.socket(port))),
        ];
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}
