//! The configuration of a store.

pub(crate) mod address;
pub(crate) mod addresses;
pub(crate) mod node_address;
pub(crate) mod options;
pub(crate) mod sentinel;

use std::fmt;
use std::time::Duration;

use ratelimit_core::layers::BatchConfig;
use ratelimit_core::store::Time;
use ratelimit_store_kit::{Certificates, Lifetime};
use redis::{ConnectionAddr, IntoConnectionInfo};

use crate::config::addresses::Servers;

/// The configuration of a [`RedisStore`](crate::RedisStore).
///
/// [`from_url`](Self::from_url) takes the address, which also says whether to connect to one server, sentinels or a
/// cluster. A store on a connection or a pool of yours does not use the address, the number of
/// [`connections`](Self::connections) and the certificates: [`default`](Self::default) needs none of them. Each field has a
/// setter of the same name:
///
/// ```
/// use ratelimit_redis::{RedisConfig, Time};
/// use std::time::Duration;
///
/// let config = RedisConfig::from_url("redis://:secret@limits.internal:6379/0")?
///     .timeout(Duration::from_millis(100))
///     .time(Time::Server);
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    pub(crate) servers: Servers,
    /// The prefix of every key. It must not contain `{}`. On a cluster, `{name}` in it puts all keys in one slot.
    pub prefix: String,
    /// The maximum duration of a call, including connecting, waiting for a shared call or for your pool, and the reply.
    pub timeout: Duration,
    /// The number of connections, used in turn; on a cluster, to each node. One is usually enough: calls on one connection
    /// do not wait for each other.
    pub connections: usize,
    /// Whose clock decides: the caller's or the server's.
    pub time: Time,
    /// How long a meter is kept after it has become irrelevant, for callers whose clock is behind. At least
    /// [`CLOCK_SLACK`](ratelimit_core::store::CLOCK_SLACK).
    pub clock_slack: Duration,
    /// How checks that arrive while others are under way share calls, exactly and in their order; see
    /// [`Batched`](ratelimit_core::layers::Batched). With `None` each check is a call of its own. Its
    /// [`timeout`](BatchConfig::timeout) is not used: [`timeout`](Self::timeout) applies.
    ///
    /// On a cluster each node has its own batches. They contain only checks against a single limit by the caller's clock,
    /// on a fixed window, a sliding-window counter, or a bucket that takes less than about 104 days to drain and does not
    /// drain in steps. Every other check is sent on its own, and so is every check on your own connection to a cluster.
    pub batch: Option<BatchConfig>,
    /// Certificates (PEM) of the authorities to trust for `rediss://`, instead of the machine's. It is an error to set this, or
    /// a client certificate, for an address without TLS.
    pub authorities: Option<Vec<u8>>,
    /// The certificate (PEM) for servers that ask clients for one (`tls-auth-clients yes`), with any intermediate
    /// certificates after it. Needs [`client_key`](Self::client_key).
    pub client_certificate: Option<Vec<u8>>,
    /// The private key (PEM) of [`client_certificate`](Self::client_certificate).
    pub client_key: Option<Vec<u8>>,
}

impl RedisConfig {
    /// The configuration for `servers`, with the defaults of [`from_url`](Self::from_url).
    pub(crate) fn of(servers: Servers) -> Self {
        Self {
            servers,
            prefix: "rl:".to_owned(),
            timeout: Duration::from_millis(500),
            connections: 1,
            time: Time::Caller,
            clock_slack: Lifetime::SLACK,
            batch: Some(BatchConfig::default()),
            authorities: None,
            client_certificate: None,
            client_key: None,
        }
    }

    ratelimit_core::kit::setters! {
        prefix: impl Into<String>,
        timeout: Duration,
        connections: usize,
        time: Time,
        clock_slack: Duration,
        batch: impl Into<Option<BatchConfig>>,
        authorities: impl Into<Option<Vec<u8>>>,
        client_certificate: impl Into<Option<Vec<u8>>>,
        client_key: impl Into<Option<Vec<u8>>>,
    }

    /// The slack in milliseconds.
    pub(crate) fn slack_millis(&self) -> u64 {
        u64::try_from(Lifetime::slack(self.clock_slack).as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn certificates(&self) -> Certificates<'_> {
        Certificates {
            authorities: self.authorities.as_deref(),
            client_certificate: self.client_certificate.as_deref(),
            client_key: self.client_key.as_deref(),
        }
    }
}

impl Default for RedisConfig {
    /// The server at `127.0.0.1:6379`, prefix `rl:`, 500 ms, one connection, the caller's clock, 10 s of slack, shared calls,
    /// no certificates.
    fn default() -> Self {
        let local = ConnectionAddr::Tcp("127.0.0.1".to_owned(), 6379).into_connection_info();
        Self::of(Servers::One(Box::new(local.expect("every `ConnectionAddr` is an address"))))
    }
}

impl fmt::Debug for RedisConfig {
    /// The address may contain a password, so it is not shown, and neither is the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("time", &self.time)
            .field("clock_slack", &self.clock_slack)
            .field("batch", &self.batch)
            .field("authorities", &self.authorities.as_ref().map(Vec::len))
            .field("client_certificate", &self.client_certificate.as_ref().map(Vec::len))
            .field("client_key", &self.client_key.as_ref().map(|_| "hidden"))
            .finish_non_exhaustive()
    }
}
