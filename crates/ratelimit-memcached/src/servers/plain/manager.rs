//! Opens the connections of a pool: clients of the crate `memcache` with one connection each.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, Pool, RecycleResult};
use memcache::{Client, ConnectionManager, MemcacheError, ServerError, Url};
use ratelimit_core::StoreError;
use scheduled_thread_pool::ScheduledThreadPool;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use crate::config::address::Address;
use crate::error::ERRORS;

/// The maximum time for connecting to a listening server.
const CONNECT: Duration = Duration::from_secs(2);

/// How long a connection that is tested may take to answer.
const TEST: Duration = Duration::from_millis(50);

/// How many clients of a pool can connect concurrently.
const THREADS: usize = 3;

/// How long a connection may be unused before it is tested: proxies close idle connections.
const IDLE: Duration = Duration::from_secs(1);

/// A pool of clients, for [`MemcachedStore::with_pool`](crate::MemcachedStore::with_pool).
pub type MemcachePool = Pool<MemcacheManager>;

/// Connects the clients of a [`MemcachePool`] to one address: that of a proxy or of a server.
///
/// A client whose connection has failed, or on which a reply may be outstanding, is not used again; the pool connects
/// another one. Connecting does not block a worker thread of the runtime.
#[derive(Clone)]
pub struct MemcacheManager {
    address: Arc<str>,
    url: Url,
    /// The threads on which clients connect. They are shared; otherwise each client would have three.
    threads: Arc<ScheduledThreadPool>,
}

impl MemcacheManager {
    /// A manager for `memcached://host:port`; the scheme is optional, and the default port is 11211. Nothing is sent before
    /// the pool needs a connection.
    ///
    /// # Errors
    /// If the address is not valid.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let invalid =
            || ERRORS.misconfigured("the address is not valid; it looks like memcached://host:port");
        let address = address(url).ok_or_else(invalid)?;
        let url = Url::parse(&format!("memcache://{address}?protocol=ascii")).map_err(|_| invalid())?;
        let threads = ScheduledThreadPool::builder().num_threads(THREADS);
        let threads = threads.thread_name_pattern("memcache-connect-{}").build();
        Ok(Self { address: address.into(), url, threads: Arc::new(threads) })
    }

    /// The address that it connects to: host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Blocks until it is connected.
    fn dial(&self) -> Result<Client, MemcacheError> {
        // One connection, which this pool never tests or replaces: the pool of clients does that.
        let only = memcache::Pool::builder()
            .max_size(1)
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .connection_timeout(CONNECT)
            .thread_pool(self.threads.clone())
            .build(ConnectionManager::new(self.url.clone()))?;
        Client::with_pool(only)
    }
}

impl fmt::Debug for MemcacheManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcacheManager").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Manager for MemcacheManager {
    type Type = Client;
    type Error = MemcacheError;

    async fn create(&self) -> Result<Client, MemcacheError> {
        // The client waits without a time limit for a server that does not answer, and retries where nothing listens. This
        // attempt can be cancelled at any time, and fails immediately.
        drop(TcpStream::connect(&*self.address).await?);
        let manager = self.clone();
        spawn_blocking(move || manager.dial()).await.map_err(io::Error::other)?
    }

    async fn recycle(&self, client: &mut Client, metrics: &Metrics) -> RecycleResult<MemcacheError> {
        // Clients that failed were not returned to the pool.
        if metrics.last_used() > IDLE {
            let client = client.clone();
            spawn_blocking(move || try_out(&client))
                .await
                .map_err(io::Error::other)
                .map_err(MemcacheError::from)??;
        }
        Ok(())
    }
}

/// Reads a key that is never written. Does not wait for long: it may be on a server behind a proxy that does not answer, and
/// another connection is soon made.
fn try_out(client: &Client) -> Result<(), MemcacheError> {
    client.set_read_timeout(Some(TEST))?;
    match client.get::<Vec<u8>>("!") {
        // The proxy has answered, for a server that has not.
        Err(MemcacheError::ServerError(ServerError::Error(_))) => Ok(()),
        answer => answer.map(drop),
    }
}

/// Host and port; `None` if it is not a valid address.
fn address(url: &str) -> Option<String> {
    let rest = url.strip_prefix("memcached://").or_else(|| url.strip_prefix("memcache://")).unwrap_or(url);
    let address = Address::parse(rest.trim_end_matches('/'))?;
    matches!(address, Address::Tcp { .. }).then(|| address.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (url, expected) in [
            ("memcached://proxy:22121", Some("proxy:22121")),
            ("memcache://proxy:22121/", Some("proxy:22121")),
            ("10.0.0.1", Some("10.0.0.1:11211")),
            ("[::1]:5", Some("[::1]:5")),
            ("[::1]", Some("[::1]:11211")),
            ("", None),
            ("memcached://", None),
            (":5", None),
            ("a b", None),
            ("a:99999", None),
            ("a,b", None),
            ("user:secret@a", None),
            ("a/path", None),
            ("a?protocol=binary", None),
        ] {
            let manager = MemcacheManager::new(url);
            assert_eq!(manager.as_ref().ok().map(MemcacheManager::address), expected, "{url}");
            assert!(!format!("{manager:?}").contains("secret"));
        }
    }
}
