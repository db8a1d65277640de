//! Opens connections, to servers that then have the scripts loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratelimit_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, Pipeline, RedisConnectionInfo, ServerErrorKind, Value};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::RedisConfig;
use crate::config::node_address::NodeAddress;
use crate::error::{self, ERRORS};
use crate::servers::stream::{Opener, Traffic};
use crate::wire::script::{CLAIM, REFUND};

/// Connecting may take this long, in the background, even if the time limit of a call is shorter.
const MIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How many requests may be queued for writing before callers have to wait.
const QUEUE: usize = 1_024;

/// Opens connections to one server.
#[derive(Clone)]
pub(crate) struct Dialer {
    address: String,
    settings: RedisConnectionInfo,
    opener: Opener,
    timeout: Duration,
    /// The time limit of a call.
    call_timeout: Duration,
    scripts: bool,
}

/// An open connection. Clones share it.
#[derive(Clone)]
pub(crate) struct OpenConnection {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) driver: Arc<Driver>,
}

/// The task that writes and reads an open connection. It ends with its last clone.
pub(crate) struct Driver {
    pub(crate) traffic: Arc<Traffic>,
    /// Whether the server has closed the connection.
    closed: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Driver {
    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Dialer {
    /// Connects to the server at this address, with this log-in and database.
    pub(crate) fn new(
        address: &ConnectionAddr,
        settings: RedisConnectionInfo,
        config: &RedisConfig,
    ) -> Result<Self, StoreError> {
        let opener = Opener::new(address, config)?;
        let timeout = config.timeout.max(MIN_TIMEOUT);
        let address = opener.address();
        Ok(Self { address, settings, opener, timeout, call_timeout: config.timeout, scripts: true })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The time limit of a call.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// Connects to the server at `place` in the same way.
    pub(crate) fn towards(&self, place: &NodeAddress) -> Self {
        let opener = self.opener.towards(place);
        Self { address: opener.address(), opener, ..self.clone() }
    }

    /// Connects with another log-in, and loads no scripts: for sentinels, which run none.
    pub(crate) fn without_scripts(&self, settings: RedisConnectionInfo) -> Self {
        Self { settings, scripts: false, ..self.clone() }
    }

    /// Whether it connects to the server at `place`.
    pub(crate) fn leads_to(&self, place: &NodeAddress) -> bool {
        self.opener.leads_to(place)
    }

    pub(crate) async fn dial_in_time(&self) -> Result<OpenConnection, StoreError> {
        timeout(self.timeout, self.dial()).await.unwrap_or_else(|_| Err(ERRORS.no_connection()))
    }

    async fn dial(&self) -> Result<OpenConnection, StoreError> {
        let traffic = Arc::<Traffic>::default();
        let stream = self.opener.open(traffic.clone()).await?;
        // `Connection` enforces the time limit of the whole call.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
        let (mut connection, driver) = MultiplexedConnection::new_with_config(&self.settings, stream, config)
            .await
            .map_err(|error| self.opener.explain(error))?;
        let closed = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn({
            let closed = closed.clone();
            async move {
                driver.await;
                closed.store(true, Ordering::SeqCst);
            }
        });
        let driver = Arc::new(Driver { traffic, closed, task });
        self.greet(&mut connection).await?;
        Ok(OpenConnection { connection, driver })
    }

    async fn greet(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        // A server that requires a log-in closes the connection on a request as long as a script. To a `PING` it says why.
        let greeting =
            connection.send_packed_command(&redis::cmd("PING")).await.and_then(Value::extract_error);
        match greeting {
            Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => {}
            greeting => drop(greeting.map_err(|error| self.opener.explain(error))?),
        }
        if self.scripts { load(connection).await } else { Ok(()) }
    }
}

/// Loads the scripts, so that the first call is one round trip like all others.
async fn load(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let mut pipeline = Pipeline::new();
    pipeline.add_command(CLAIM.load()).add_command(REFUND.load());
    let replies = connection.send_packed_commands(&pipeline, 0, 2).await.map_err(error::from_redis)?;
    for reply in replies {
        match reply.extract_error() {
            // A user without permission to load scripts can still send them.
            Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => {}
            Err(error) => return Err(error::from_redis(error)),
            Ok(_) => {}
        }
    }
    Ok(())
}
