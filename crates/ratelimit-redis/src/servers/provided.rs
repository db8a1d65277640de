//! Connections that the program already has.

use std::pin::Pin;
use std::time::Duration;

use ratelimit_core::{ErrorKind, StoreError};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind as Kind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{self, ERRORS};
use crate::wire::script::in_full;

/// The first pause before a call on keys that are moving between two nodes is retried.
const PAUSE: Duration = Duration::from_millis(10);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The server's reply, or the failure if there is none.
pub(crate) type Sent<'a> =
    Pin<Box<dyn Future<Output = Result<Result<Value, RedisError>, StoreError>> + Send + 'a>>;

/// A connection or a pool of the program, over which commands are sent.
pub(crate) trait Source: Send + Sync {
    /// Sends a command once.
    fn send<'a>(&'a self, cmd: &'a Cmd, deadline: Instant) -> Sent<'a>;
}

/// A store's link over a connection or a pool of the program.
pub(crate) struct Provided {
    source: Box<dyn Source>,
    address: &'static str,
    slots: bool,
}

impl Provided {
    /// One server.
    pub(crate) fn single(source: impl Source + 'static, address: &'static str) -> Self {
        Self { source: Box::new(source), address, slots: false }
    }

    /// A cluster.
    pub(crate) fn cluster(source: impl Source + 'static, address: &'static str) -> Self {
        Self { source: Box::new(source), address, slots: true }
    }

    pub(crate) fn has_slots(&self) -> bool {
        self.slots
    }

    pub(crate) fn address(&self) -> &str {
        self.address
    }

    /// Sends a command. Sends it again if the server does not have the script, then with the whole script, and on a cluster
    /// if another node serves the slot. In both cases the server has not executed it.
    pub(crate) async fn send(&self, mut cmd: Cmd, deadline: Instant) -> Result<Value, StoreError> {
        let mut pause = PAUSE;
        loop {
            let reply = self.source.send(&cmd, deadline).await;
            let error = match reply.map_err(|failure| failure.at(self.address))? {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if error.kind() == ServerErrorKind::NoScript.into()
                && let Some(full) = in_full(&cmd)
            {
                cmd = full;
            } else if self.slots && is_elsewhere(&error) && Instant::now() + pause < deadline {
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            } else {
                return Err(self.failure(error));
            }
        }
    }

    fn failure(&self, error: RedisError) -> StoreError {
        if !self.slots {
            return error::from_redis(error).at(self.address);
        }
        let failure = if is_elsewhere(&error) {
            ERRORS.of(
                ErrorKind::Unreachable,
                "the cluster is moving slots, or the connection does not follow them",
            )
        } else {
            error::from_redis(error)
        };
        // The client may have sent the call before and lost the reply.
        failure.maybe_applied().at(self.address)
    }
}

/// Whether another node serves the key, now or soon.
fn is_elsewhere(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), Kind::Server(Moved | Ask | TryAgain))
}

/// Sends a command over a connection of the program: without a reply it may have been executed.
pub(crate) async fn request(
    connection: &mut (impl ConnectionLike + Send),
    cmd: &Cmd,
    deadline: Instant,
) -> Result<Result<Value, RedisError>, StoreError> {
    let reply = match timeout_at(deadline, connection.req_packed_command(cmd)).await {
        Ok(reply) => reply.and_then(Value::extract_error),
        Err(_) => return Err(ERRORS.late()),
    };
    match reply {
        Err(error) if error.is_timeout() => {
            let message = "no answer within the connection's own time limit";
            Err(ERRORS.of(ErrorKind::Timeout, message).maybe_applied())
        }
        Err(error) if !matches!(error.kind(), Kind::Server(_) | Kind::Extension) => {
            Err(error::from_redis(error).maybe_applied())
        }
        reply => Ok(reply),
    }
}
