//! The transport over Redis publish/subscribe.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::{Transport, TransportError};
use crate::table::lock;

/// The time limit of a call, unless another one is set.
const TIMEOUT: Duration = Duration::from_secs(2);

/// After this time without a message, a ping checks whether the server is still there. If this node has sent a message in
/// the meantime, it subscribes anew: that went to another server than the one that it listens to.
const SILENCE: Duration = Duration::from_secs(5);

/// The maximum length of a message, in bytes. The server's buffer for a subscriber (8 MiB for a minute by default) has to
/// hold many messages.
const LARGEST: usize = 256 << 10;

/// Sends messages with `PUBLISH` and `SUBSCRIBE` of one Redis server, or of one node of a cluster.
///
/// It uses one connection to publish and another one to subscribe, and reconnects both when they break. If messages were
/// published while it was not subscribed, the node requests them again. The server stores nothing, so it may lose all its
/// data. The user needs the permissions `+publish +subscribe +ping &channel`.
///
/// The server has to be a primary: what is published on a replica does not reach the primary. After each sending, the
/// transport asks the server for its role (`HELLO`, which needs no permission). From a replica it disconnects with an error,
/// and connects to the address again. So after a failover nodes find each other again if the address is a name that then
/// leads to the new primary. Any node of a cluster will do.
///
/// ```no_run
/// use ratelimit_cluster::{RedisTransport, Replicated};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let transport = RedisTransport::connect("redis://127.0.0.1:6379", "limits").await?;
/// let store = Replicated::new(transport);
/// # Ok(())
/// # }
/// ```
pub struct RedisTransport {
    client: Client,
    channel: String,
    address: String,
    timeout: Duration,
    publisher: Mutex<Option<MultiplexedConnection>>,
    subscriber: Mutex<Option<(PubSubSink, PubSubStream)>>,
    /// When the first message was sent after which none has been received.
    unheard: std::sync::Mutex<Option<Instant>>,
}

impl RedisTransport {
    /// Connects to the server at `url` (`redis://[user][:password@]host[:port]`, or `rediss://` if the program enables TLS
    /// of the crate `redis`). Nodes with the same `channel` are one fleet.
    ///
    /// # Errors
    /// If the address is not valid, the server cannot be reached, or it is a replica.
    pub async fn connect(url: &str, channel: impl Into<String>) -> Result<Self, TransportError> {
        let info = url.into_connection_info().map_err(|error| failure(&error))?;
        let address = info.addr().to_string();
        let client = Client::open(info).map_err(|error| failure(&error).at(&address))?;
        let (publisher, subscriber, unheard) = Default::default();
        let (channel, timeout) = (channel.into(), TIMEOUT);
        let transport = Self { client, channel, address, timeout, publisher, subscriber, unheard };
        transport.send(&[]).await?;
        *transport.subscriber.lock().await = Some(transport.subscribe().await?);
        Ok(transport)
    }

    /// Sets the time limit of a call; 2 s by default. [`connect`](Self::connect) has the default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn subscribe(&self) -> Result<(PubSubSink, PubSubStream), TransportError> {
        self.in_time(async {
            let (mut sink, stream) = self.client.get_async_pubsub().await?.split();
            sink.subscribe(&self.channel).await?;
            Ok((sink, stream))
        })
        .await
    }

    async fn publisher(&self) -> Result<MultiplexedConnection, TransportError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        self.in_time(self.client.get_multiplexed_async_connection_with_config(&config)).await
    }

    /// Checks that the server at the end of this connection is not a replica.
    async fn check_role(&self, connection: &mut MultiplexedConnection) -> Result<(), TransportError> {
        let hello = redis::cmd("HELLO");
        let about: HashMap<String, Value> = self.in_time(hello.query_async(connection)).await?;
        let is = |field, text: &str| match about.get(field) {
            Some(Value::BulkString(value)) => value == text.as_bytes(),
            Some(Value::SimpleString(value)) => value == text,
            _ => false,
        };
        // In a cluster, each node passes on what is published to all others.
        if is("role", "replica") && !is("mode", "cluster") {
            let message =
                "the server is a replica, whose messages do not reach the primary; connect to the primary";
            return Err(TransportError::new("redis", message).at(&self.address));
        }
        Ok(())
    }

    /// Whether this node should have received a message that it has sent.
    fn is_deaf(&self) -> bool {
        lock(&self.unheard).is_some_and(|since| since.elapsed() > SILENCE)
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, TransportError> {
        match timeout(self.timeout, call).await {
            Ok(outcome) => outcome.map_err(|error| failure(&error).at(&self.address)),
            Err(_) => Err(TransportError::new("redis", "no answer within the time limit").at(&self.address)),
        }
    }
}

/// The error with its kind and the server's message, neither of which contains a password.
fn failure(error: &RedisError) -> TransportError {
    TransportError::new("redis", error.to_string())
}

impl fmt::Debug for RedisTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTransport")
            .field("address", &self.address)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

impl Transport for RedisTransport {
    fn largest(&self) -> usize {
        LARGEST
    }

    async fn send(&self, messages: &[Arc<[u8]>]) -> Result<(), TransportError> {
        let mut publisher = self.publisher.lock().await;
        // Taken out, so that after an error or a dropped future the next call makes a new connection.
        let mut connection = match publisher.take() {
            Some(connection) => connection,
            None => self.publisher().await?,
        };
        if !messages.is_empty() {
            // Before it can arrive.
            lock(&self.unheard).get_or_insert_with(Instant::now);
        }
        for message in messages {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(&self.channel).arg(&message[..]);
            self.in_time(publish.query_async::<()>(&mut connection)).await?;
        }
        // Last, so that the messages were published on a primary.
        self.check_role(&mut connection).await?;
        *publisher = Some(connection);
        Ok(())
    }

    async fn receive(&self) -> Result<Arc<[u8]>, TransportError> {
        let mut subscriber = self.subscriber.lock().await;
        loop {
            let (sink, stream) = match &mut *subscriber {
                Some(both) => both,
                none => none.insert(self.subscribe().await?),
            };
            match timeout(SILENCE, stream.next()).await {
                Ok(Some(message)) => {
                    *lock(&self.unheard) = None;
                    return Ok(message.get_payload_bytes().into());
                }
                Ok(None) => *subscriber = None,
                Err(_) => {
                    let is_there = timeout(self.timeout, sink.ping::<Value>()).await;
                    if !matches!(is_there, Ok(Ok(_))) || self.is_deaf() {
                        *subscriber = None;
                        *lock(&self.unheard) = None;
                    }
                }
            }
        }
    }
}
