//! One connection to one server, dialled anew when it has broken or fallen silent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimit_core::ErrorKind;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Failure;
use crate::flight::Flight;
use crate::script::{CLAIM, REFUND};
use crate::stream::Opener;

/// How long dialling may take when the time limit of a call is shorter. It goes on in the background.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many requests may wait to be written before callers wait themselves.
const QUEUE: usize = 1_024;

/// Makes connections that know the scripts.
pub(crate) struct Dialer {
    address: String,
    settings: RedisConnectionInfo,
    opener: Opener,
    patience: Duration,
}

/// A connection that callers share.
///
/// A request that is not answered in time takes the connection with it: the server may be frozen or its packets may be
/// lost, and then every later request on it would wait in vain. The next caller dials; others that come meanwhile wait for
/// that one dial, which goes on when their time is up.
pub(crate) struct Line {
    dialer: Arc<Dialer>,
    current: Arc<Mutex<Option<Wire>>>,
    dialling: Flight<Result<(), Failure>>,
}

/// What a server replied, be it an error.
pub(crate) type Reply = Result<Value, RedisError>;

/// A connection as it was dialled.
#[derive(Clone)]
struct Wire {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
}

struct Shared {
    /// Bytes written so far.
    written: Arc<AtomicU64>,
    /// Its other end has closed it.
    closed: Arc<AtomicBool>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Dialer {
    /// Dials where `opener` leads; `limit` is the time limit of a call.
    pub(crate) fn new(settings: RedisConnectionInfo, opener: Opener, limit: Duration) -> Self {
        Self { address: opener.address(), settings, opener, patience: limit.max(PATIENCE) }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    async fn dial_in_time(&self) -> Result<Wire, Failure> {
        let late = || Failure::new(ErrorKind::Timeout, "no connection within the time limit");
        timeout(self.patience, self.dial()).await.unwrap_or_else(|_| Err(late()))
    }

    async fn dial(&self) -> Result<Wire, Failure> {
        let redis_failure = |error: RedisError| Failure::from_redis(error);
        let written = Arc::new(AtomicU64::new(0));
        let stream = self.opener.open(written.clone()).await.map_err(|error| redis_failure(error.into()))?;
        // The time limit of a whole call is kept by `Line`.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
        let (mut connection, driver) = MultiplexedConnection::new_with_config(&self.settings, stream, config)
            .await
            .map_err(redis_failure)?;
        let closed = Arc::new(AtomicBool::new(false));
        let driver = tokio::spawn({
            let closed = closed.clone();
            async move {
                driver.await;
                closed.store(true, Ordering::SeqCst);
            }
        });
        let shared = Arc::new(Shared { written, closed, driver });
        load(&mut connection).await?;
        Ok(Wire { connection, shared })
    }
}

/// Makes the scripts known, so that the first call is one trip like all others.
async fn load(connection: &mut MultiplexedConnection) -> Result<(), Failure> {
    // A server that wants a log-in hangs up on a request as long as a script; to this it says why.
    let greeting = connection.send_packed_command(&redis::cmd("PING")).await.and_then(Value::extract_error);
    match greeting {
        Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => {}
        greeting => drop(greeting.map_err(Failure::from_redis)?),
    }
    let mut pipeline = Pipeline::new();
    pipeline.add_command(CLAIM.load()).add_command(REFUND.load());
    let replies = connection.send_packed_commands(&pipeline, 0, 2).await.map_err(Failure::from_redis)?;
    for reply in replies {
        match reply.extract_error() {
            // Who may not load scripts can still send them.
            Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => {}
            Err(error) => return Err(Failure::from_redis(error)),
            Ok(_) => {}
        }
    }
    Ok(())
}

impl Line {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, current: Arc::default(), dialling: Flight::new() }
    }

    /// Connects unless it is connected.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        self.wire(deadline).await.map(drop)
    }

    /// Sends a command; after an `ASKING`, if another node of the cluster has sent it here although this one does not serve
    /// the slot yet.
    ///
    /// If the connection breaks before a byte of it has been written, it is sent once more on a new one.
    pub(crate) async fn send(&self, cmd: &Cmd, asking: bool, deadline: Instant) -> Result<Reply, Failure> {
        let mut again = true;
        loop {
            let mut wire = self.wire(deadline).await?;
            let before = wire.shared.written.load(Ordering::SeqCst);
            let sent = timeout_at(deadline, request(&mut wire.connection, cmd, asking)).await;
            let unwritten = wire.shared.written.load(Ordering::SeqCst) == before;
            match sent {
                Err(_) => {
                    self.hang_up(&wire);
                    return Err(self.late("no answer within the time limit", unwritten));
                }
                Ok(Err(error)) if error.is_io_error() || error.is_unrecoverable_error() => {
                    self.hang_up(&wire);
                    if unwritten && again {
                        again = false;
                        continue;
                    }
                    let failure = Failure::from_redis(error).at(self.dialer.address());
                    return Err(if unwritten { failure } else { failure.maybe_applied() });
                }
                Ok(reply) => {
                    let reply = reply.and_then(Value::extract_error);
                    if reply.as_ref().is_err_and(is_read_only) {
                        // It has become a replica. Its name may lead to the new primary: look again.
                        self.hang_up(&wire);
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// The connection in use, or a new one.
    async fn wire(&self, deadline: Instant) -> Result<Wire, Failure> {
        if let Some(wire) = self.open_wire() {
            return Ok(wire);
        }
        let address = self.dialer.address();
        let dial = async {
            let (mut outcome, under_way) = self.dialling.join(|| self.dial()).await;
            if under_way && matches!(outcome, Some(Err(_))) {
                // It was begun before this call, and may have failed because of what was then.
                (outcome, _) = self.dialling.join(|| self.dial()).await;
            }
            outcome.unwrap_or_else(|| Err(Failure::stopped()))
        };
        match timeout_at(deadline, dial).await {
            Ok(Ok(())) => self.open_wire().ok_or_else(|| {
                Failure::new(ErrorKind::Unreachable, "the connection was closed at once").at(address)
            }),
            Ok(Err(failure)) => Err(failure.at(address)),
            Err(_) => Err(self.late("no connection within the time limit", true)),
        }
    }

    fn dial(&self) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let (dialer, current) = (self.dialer.clone(), self.current.clone());
        async move {
            let wire = dialer.dial_in_time().await?;
            *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(wire);
            Ok(())
        }
    }

    fn open_wire(&self) -> Option<Wire> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|wire| !wire.shared.closed.load(Ordering::SeqCst)).cloned()
    }

    /// Forgets this connection, unless a newer one has taken its place.
    fn hang_up(&self, wire: &Wire) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|held| Arc::ptr_eq(&held.shared, &wire.shared)) {
            *current = None;
        }
    }

    fn late(&self, message: &'static str, unwritten: bool) -> Failure {
        let failure = Failure::new(ErrorKind::Timeout, message).at(self.dialer.address());
        if unwritten { failure } else { failure.maybe_applied() }
    }
}

async fn request(connection: &mut MultiplexedConnection, cmd: &Cmd, asking: bool) -> Reply {
    if !asking {
        return connection.send_packed_command(cmd).await;
    }
    let mut pipeline = Pipeline::new();
    pipeline.cmd("ASKING").add_command(cmd.clone());
    let replies = connection.send_packed_commands(&pipeline, 0, 2).await?;
    Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
}

fn is_read_only(error: &RedisError) -> bool {
    Failure::from_redis(error.clone()).kind() == ErrorKind::ReadOnly
}
