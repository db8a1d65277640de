//! One connection to one server, dialled anew when it has broken or fallen silent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::ErrorKind;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, RedisConnectionInfo, RedisError, ServerErrorKind, Value,
};
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::script::{CLAIM, REFUND, Script};
use crate::stream::Opener;

/// How many requests may wait to be written before callers wait themselves.
const QUEUE: usize = 1_024;

/// Makes connections that know the scripts.
pub(crate) struct Dialer {
    address: String,
    settings: RedisConnectionInfo,
    opener: Opener,
}

/// A connection that callers share.
///
/// A request that is not answered in time takes the connection with it: the server may be frozen or its packets may be
/// lost, and then every later request on it would wait in vain. The next caller dials; others that come meanwhile wait for
/// that one dial.
pub(crate) struct Line {
    dialer: Arc<Dialer>,
    current: Mutex<Option<Wire>>,
    dialling: tokio::sync::Mutex<()>,
}

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
    pub(crate) fn new(info: &ConnectionInfo, authorities: Option<&[u8]>) -> Result<Self, Failure> {
        let address = info.addr().to_string();
        let opener = Opener::new(info.addr(), authorities).map_err(|failure| failure.at(&address))?;
        Ok(Self { settings: info.redis_settings().clone(), opener, address })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
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
    let mut pipeline = redis::Pipeline::new();
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
        Self { dialer, current: Mutex::new(None), dialling: tokio::sync::Mutex::new(()) }
    }

    /// Connects unless it is connected.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        self.wire(deadline).await.map(drop)
    }

    /// Calls a script; if the server has forgotten it, sends it along.
    pub(crate) async fn run(&self, script: &Script, call: Cmd, deadline: Instant) -> Result<Value, Failure> {
        match self.send(&call, deadline).await? {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.send(&script.call_in_full(&call), deadline).await?
            }
            reply => reply,
        }
        .map_err(|error| Failure::from_redis(error).at(self.dialer.address()))
    }

    /// Sends a command, and gives what the server replied, be it an error.
    ///
    /// If the connection breaks before a byte of it has been written, it is sent once more on a new one.
    pub(crate) async fn send(
        &self,
        cmd: &Cmd,
        deadline: Instant,
    ) -> Result<Result<Value, RedisError>, Failure> {
        let mut again = true;
        loop {
            let mut wire = self.wire(deadline).await?;
            let before = wire.shared.written.load(Ordering::SeqCst);
            let sent = timeout_at(deadline, wire.connection.send_packed_command(cmd)).await;
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
                Ok(reply) => return Ok(reply.and_then(Value::extract_error)),
            }
        }
    }

    /// The connection in use, or a new one.
    async fn wire(&self, deadline: Instant) -> Result<Wire, Failure> {
        if let Some(wire) = self.open_wire() {
            return Ok(wire);
        }
        let dial = async {
            let _only_one = self.dialling.lock().await;
            if let Some(wire) = self.open_wire() {
                return Ok::<_, Failure>(wire);
            }
            let wire = self.dialer.dial().await?;
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(wire.clone());
            Ok(wire)
        };
        match timeout_at(deadline, dial).await {
            Ok(Ok(wire)) => Ok(wire),
            Ok(Err(failure)) => Err(failure.at(self.dialer.address())),
            Err(_) => Err(self.late("no connection within the time limit", true)),
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
