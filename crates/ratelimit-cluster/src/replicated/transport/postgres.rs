//! The transport over PostgreSQL `LISTEN` and `NOTIFY`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Transport, TransportError};

/// The time limit of a call, unless another one is set.
const TIMEOUT: Duration = Duration::from_secs(2);

/// After this time without a message, a query checks whether the server is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// The maximum length of a message, in bytes: a payload is text of less than 8,000 bytes, and base64 encodes three bytes as
/// four.
const LARGEST: usize = 7_999 / 4 * 3;

/// The maximum length of a channel's name, in bytes.
const LONGEST_NAME: usize = 63;

/// The maximum number of messages in one statement.
const MAX_PER_STATEMENT: usize = 256;

/// Sends messages with `NOTIFY` and `LISTEN` of one PostgreSQL server.
///
/// It uses one connection to notify and another one to listen, and reconnects both when they break. If messages were sent
/// while it did not listen, the node requests them again. It needs no table. A connection pooler must not be in
/// transaction mode, which does not support `LISTEN`. All nodes have to use the same database of the primary: a standby
/// forwards no notifications.
///
/// A payload is text of at most 7,999 bytes, so messages have at most 5,997 bytes and are sent as base64, up to 256 in one
/// statement. Transactions that notify commit one at a time in the whole database cluster.
///
/// ```no_run
/// use ratelimit_cluster::{PostgresTransport, Replicated};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let transport = PostgresTransport::connect("postgres://app@127.0.0.1/app", "limits").await?;
/// let store = Replicated::new(transport);
/// # Ok(())
/// # }
/// ```
pub struct PostgresTransport {
    options: PgConnectOptions,
    channel: String,
    address: String,
    timeout: Duration,
    notifier: Mutex<Option<PgConnection>>,
    listener: Mutex<Option<PgListener>>,
}

impl PostgresTransport {
    /// Connects to the server at `url` (`postgres://[user][:password@]host[:port][/database]`). Nodes with the same
    /// `channel`, of at most 63 bytes, are one fleet.
    ///
    /// # Errors
    /// If the address or the channel is not valid, or the server cannot be reached.
    pub async fn connect(url: &str, channel: impl Into<String>) -> Result<Self, TransportError> {
        let options: PgConnectOptions = url.parse().map_err(|_| {
            // The original error may contain the address, and so the password.
            TransportError::new("postgres", "the address is not valid")
        })?;
        // The client library leaves an IPv6 address in its brackets, and looks it up as a name.
        let host = options.get_host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        let options = match host {
            Some(host) => options.host(&host),
            None => options,
        };
        Self::connect_with(options, channel).await
    }

    /// As [`connect`](Self::connect), with connection options.
    ///
    /// # Errors
    /// See [`connect`](Self::connect).
    pub async fn connect_with(
        options: PgConnectOptions,
        channel: impl Into<String>,
    ) -> Result<Self, TransportError> {
        let channel = channel.into();
        if channel.is_empty() || channel.len() > LONGEST_NAME || channel.contains('\0') {
            return Err(TransportError::new("postgres", "a channel's name has 1 to 63 bytes"));
        }
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("ratelimit"),
        };
        let options = options.disable_statement_logging();
        let address = format!("{}:{}", options.get_host(), options.get_port());
        let (notifier, listener) = (Mutex::default(), Mutex::default());
        let transport = Self { options, channel, address, timeout: TIMEOUT, notifier, listener };
        *transport.listener.lock().await = Some(transport.listen().await?);
        Ok(transport)
    }

    /// Sets the time limit of a call; 2 s by default. [`connect`](Self::connect) has the default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A listener with its own connection, which is closed with it.
    async fn listen(&self) -> Result<PgListener, TransportError> {
        let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.connect_lazy_with(self.options.clone());
        self.in_time(async {
            let mut listener = PgListener::connect_with(&pool).await?;
            // `try_recv` reports a broken connection; the next one is made here, within the time limit.
            listener.eager_reconnect(false);
            listener.listen(&self.channel).await?;
            Ok(listener)
        })
        .await
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, TransportError> {
        match timeout(self.timeout, call).await {
            Ok(outcome) => outcome.map_err(|error| self.failure(&error)),
            Err(_) => {
                Err(TransportError::new("postgres", "no answer within the time limit").at(&self.address))
            }
        }
    }

    fn failure(&self, error: &sqlx::Error) -> TransportError {
        let message = match error {
            sqlx::Error::Database(error) => error.message().to_owned(),
            sqlx::Error::Io(error) => error.to_string(),
            // May contain an option, and so a password.
            sqlx::Error::Configuration(_) => "the connection's options are not valid".to_owned(),
            error => error.to_string(),
        };
        TransportError::new("postgres", message).at(&self.address)
    }
}

impl fmt::Debug for PostgresTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTransport")
            .field("address", &self.address)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

impl Transport for PostgresTransport {
    fn largest(&self) -> usize {
        LARGEST
    }

    async fn send(&self, messages: &[Arc<[u8]>]) -> Result<(), TransportError> {
        let mut notifier = self.notifier.lock().await;
        // Taken out, so that after an error or a dropped future the next call makes a new connection.
        let mut connection = match notifier.take() {
            Some(connection) => connection,
            None => self.in_time(self.options.connect()).await?,
        };
        for some in messages.chunks(MAX_PER_STATEMENT) {
            let payloads: Vec<String> = some.iter().map(|message| STANDARD_NO_PAD.encode(message)).collect();
            let notify = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload";
            let notify = sqlx::query(notify).bind(&self.channel).bind(payloads);
            self.in_time(notify.execute(&mut connection)).await?;
        }
        *notifier = Some(connection);
        Ok(())
    }

    async fn receive(&self) -> Result<Arc<[u8]>, TransportError> {
        let mut listener = self.listener.lock().await;
        loop {
            let current = match &mut *listener {
                Some(current) => current,
                none => none.insert(self.listen().await?),
            };
            match timeout(SILENCE, current.try_recv()).await {
                Ok(Ok(Some(message))) => {
                    // What is not base64 was sent by another program.
                    if let Ok(message) = STANDARD_NO_PAD.decode(message.payload()) {
                        return Ok(message.into());
                    }
                }
                Ok(_) => *listener = None,
                Err(_) => {
                    let look = sqlx::query("SELECT 1");
                    if !matches!(timeout(self.timeout, look.execute(&mut *current)).await, Ok(Ok(_))) {
                        *listener = None;
                    }
                }
            }
        }
    }
}
