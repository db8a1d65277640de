//! The transport over Redis publish/subscribe.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisError};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Transport, TransportError};

/// The time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(2);

/// After this time without a message, a ping checks whether the server is still there.
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
    publisher: Mutex<Option<MultiplexedConnection>>,
    subscriber: Mutex<Option<(PubSubSink, PubSubStream)>>,
}

impl RedisTransport {
    /// Connects to the server at `url` (`redis://[user][:password@]host[:port]`, or `rediss://` if the program enables TLS
    /// of the crate `redis`). Nodes with the same `channel` are one fleet.
    ///
    /// # Errors
    /// If the address is not valid, or the server cannot be reached.
    pub async fn connect(url: &str, channel: impl Into<String>) -> Result<Self, TransportError> {
        let info = url.into_connection_info().map_err(|error| failure(&error))?;
        let address = info.addr().to_string();
        let client = Client::open(info).map_err(|error| failure(&error).at(&address))?;
        let (publisher, subscriber) = (Mutex::default(), Mutex::default());
        let transport = Self { client, channel: channel.into(), address, publisher, subscriber };
        *transport.subscriber.lock().await = Some(transport.subscribe().await?);
        Ok(transport)
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

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, TransportError> {
        match timeout(TIMEOUT, call).await {
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
        for message in messages {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(&self.channel).arg(&message[..]);
            self.in_time(publish.query_async::<()>(&mut connection)).await?;
        }
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
                Ok(Some(message)) => return Ok(message.get_payload_bytes().into()),
                Ok(None) => *subscriber = None,
                Err(_) => {
                    let is_there = timeout(TIMEOUT, sink.ping::<redis::Value>()).await;
                    if !matches!(is_there, Ok(Ok(_))) {
                        *subscriber = None;
                    }
                }
            }
        }
    }
}
