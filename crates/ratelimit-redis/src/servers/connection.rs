//! One connection to one server, replaced when it breaks or stops answering.

use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::SingleFlight;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::Instant;

use crate::error::{self, ERRORS};
use crate::servers::dialer::{Dialer, OpenConnection};
use crate::servers::liveness::{Current, Sent};

/// A connection that callers share.
///
/// When it has broken, or the server does not answer (see `liveness.rs`), the next caller starts a new one. Callers that arrive
/// meanwhile wait for the same attempt, which continues when their deadlines pass.
pub(crate) struct Connection {
    dialer: Arc<Dialer>,
    current: Arc<Current>,
    dialling: SingleFlight<Result<(), StoreError>>,
}

/// A server's reply, which may be an error.
pub(crate) type Reply = Result<Value, RedisError>;

impl Connection {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, current: Arc::default(), dialling: SingleFlight::new() }
    }

    /// Connects unless it is connected.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        self.open(deadline).await.map(drop)
    }

    /// Sends a command, after an `ASKING` if another node of the cluster has redirected it here although this node does not
    /// serve the slot yet.
    ///
    /// If the connection breaks before a byte of the command has been written, it is sent once more on a new connection.
    pub(crate) async fn send(&self, cmd: &Cmd, asking: bool, deadline: Instant) -> Result<Reply, StoreError> {
        let mut again = true;
        loop {
            let OpenConnection { mut connection, driver } = self.open(deadline).await?;
            let sent = Sent::now(&driver);
            let request = request(&mut connection, cmd, asking);
            match self.current.wait(Some(sent), deadline, request).await {
                Err(_) => return Err(self.late(sent)),
                Ok(Err(error)) if error.is_io_error() || error.is_unrecoverable_error() => {
                    let is_unwritten = sent.is_unwritten();
                    self.current.hang_up(&driver);
                    if is_unwritten && again {
                        again = false;
                        continue;
                    }
                    return Err(self.broken(error, is_unwritten));
                }
                Ok(reply) => {
                    let reply = reply.and_then(Value::extract_error);
                    if reply.as_ref().is_err_and(is_read_only) {
                        // The server has become a replica. Its name may resolve to the new primary, so connect again.
                        self.current.hang_up(&driver);
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// Sends several commands as one request and returns the reply to each. None is sent again: if nothing was written, the
    /// failure allows sending them to another node.
    pub(crate) async fn send_all(
        &self,
        calls: &Pipeline,
        number: usize,
        deadline: Instant,
    ) -> Result<Vec<Value>, StoreError> {
        let OpenConnection { mut connection, driver } = self.open(deadline).await?;
        let sent = Sent::now(&driver);
        let request = connection.send_packed_commands(calls, 0, number);
        match self.current.wait(Some(sent), deadline, request).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) => {
                let is_unwritten = sent.is_unwritten();
                self.current.hang_up(&driver);
                Err(self.broken(error, is_unwritten))
            }
            Err(_) => Err(self.late(sent)),
        }
    }

    /// The open connection, or a new one.
    async fn open(&self, deadline: Instant) -> Result<OpenConnection, StoreError> {
        if let Some(open) = self.current.open() {
            return Ok(open);
        }
        let address = self.dialer.address();
        let dial = async {
            let outcome = self.dialling.succeed(|| self.dial()).await;
            outcome.unwrap_or_else(|| Err(ERRORS.stopped()))
        };
        match self.current.wait(None, deadline, dial).await {
            Ok(Ok(())) => self.current.open().ok_or_else(|| {
                ERRORS.of(ErrorKind::Unreachable, "the server closed the connection immediately").at(address)
            }),
            Ok(Err(failure)) => Err(failure.at(address)),
            Err(_) => Err(ERRORS.no_connection().at(address)),
        }
    }

    fn dial(&self) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (dialer, current) = (self.dialer.clone(), self.current.clone());
        async move {
            // So far no claim has been sent.
            current.replace(dialer.dial_in_time().await.map_err(StoreError::not_applied)?);
            Ok(())
        }
    }

    /// Whether the deadline of a call whose caller gave up has passed without an answer. The next call replaces the
    /// connection.
    pub(crate) fn is_silent(&self) -> bool {
        self.current.is_silent()
    }

    /// The error of a request whose connection broke.
    fn broken(&self, error: RedisError, is_unwritten: bool) -> StoreError {
        let failure = error::from_redis(error).at(self.dialer.address());
        if is_unwritten { failure } else { failure.maybe_applied() }
    }

    /// The error of a request without a reply in time.
    ///
    /// The claims may be charged, even if nothing was written yet: other calls keep the connection open, and a server that
    /// reads again makes room for the request.
    fn late(&self, sent: Sent<'_>) -> StoreError {
        self.current.had_no_reply(sent, self.dialer.call_timeout());
        ERRORS.late().at(self.dialer.address())
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
    error::from_redis(error.clone()).kind() == ErrorKind::ReadOnly
}
