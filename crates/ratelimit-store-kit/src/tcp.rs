//! Connections over TCP, as stores need them.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// After so long without traffic a connection is probed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Connects to a server.
///
/// Small requests are sent at once: none waits for the acknowledgement of the one before. An idle connection is probed every few
/// seconds, so that no firewall forgets it and a lost server is noticed.
///
/// ```
/// use std::io;
///
/// use ratelimit_store_kit::{deadline_after, tcp};
/// use std::time::Duration;
///
/// async fn connect() -> io::Result<tokio::net::TcpStream> {
///     let deadline = deadline_after(Duration::from_secs(1));
///     tokio::time::timeout_at(deadline, tcp::connect("cache.internal", 7000)).await?
/// }
/// ```
///
/// # Errors
/// If nothing listens there. It has no time limit of its own.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
    SockRef::from(&stream).set_tcp_keepalive(&probes)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_are_probed_and_small_requests_do_not_wait() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stream = connect("127.0.0.1", port).await.expect("a connection");
        assert!(SockRef::from(&stream).keepalive().expect("a setting"));
        assert!(stream.nodelay().expect("a setting"));
    }
}
