//! Servers that are not reached over plain TCP.

use std::os::unix::fs::PermissionsExt;

use ratelimit_testbed::Memcached;

/// A server with a log-in, whose password has to be encoded in a URL.
pub(crate) fn log_in() -> Memcached {
    let log_in = Some(("alice".to_owned(), "a,b:c@d/%41é".to_owned()));
    Memcached { log_in, ..Memcached::default() }
}

/// A server with a Unix socket, and the directory of the socket.
pub(crate) fn socket() -> (Memcached, tempfile::TempDir) {
    let folder = tempfile::Builder::new().prefix("ratelimit-socket-").tempdir().expect("a folder");
    // If the test runs as root, the server runs as another user.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let socket = Some(folder.path().join("memcached.sock"));
    (Memcached { socket, ..Memcached::default() }, folder)
}

/// A server with TLS that asks for client certificates.
#[cfg(feature = "tls")]
pub(crate) fn tls() -> Memcached {
    let certificates = ratelimit_testbed::Certificates::new().expect("certificates");
    Memcached { certificates: Some(std::sync::Arc::new(certificates)), ..Memcached::default() }
}

/// The settings that a client needs for such a server.
#[cfg(feature = "tls")]
pub(crate) fn with_certificates(
    config: ratelimit_memcached::MemcachedConfig,
    way: &Memcached,
) -> ratelimit_memcached::MemcachedConfig {
    let read = |path| Some(std::fs::read(path).expect("a file of the certificates"));
    let certificates = way.certificates.as_ref().expect("it has certificates");
    config
        .authorities(read(certificates.authority()))
        .client_certificate(read(certificates.client()))
        .client_key(read(certificates.client_key()))
}
