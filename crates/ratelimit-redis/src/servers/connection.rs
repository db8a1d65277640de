//! One connection to one server, replaced when it breaks or stops answering.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::SingleFlight;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, Pipeline, RedisConnectionInfo, RedisError, ServerErrorKind,
    Value,
};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::RedisConfig;
use crate::config::node_address::NodeAddress;
use crate::error::{self, ERRORS};
use crate::servers::stream::{Opener, Passed, Traffic};
use crate::wire::script::{CLAIM, REFUND};

/// Connecting may take this long, in the background, even if the time limit of a call is shorter.
const MIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How many requests may be queued for writing before callers have to wait.
const QUEUE: usize = 1_024;

/// Opens connections, to servers that have the scripts loaded.
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

/// A connection that callers share.
///
/// A request that is not answered in time closes the connection: the server may be frozen or its packets may be lost, and
/// every later request would time out as well. The next caller starts a new connection. Callers that arrive meanwhile wait
/// for the same attempt, which continues when their deadlines pass.
///
/// So does a request whose caller gives up earlier, if nothing has arrived from the server when its deadline has passed. And a
/// request that was sent shortly before its deadline, because its caller had waited for the connection, if nothing has arrived
/// within another time limit.
pub(crate) struct Connection {
    dialer: Arc<Dialer>,
    current: Arc<Mutex<Current>>,
    dialling: SingleFlight<Result<(), StoreError>>,
}

/// A server's reply, which may be an error.
pub(crate) type Reply = Result<Value, RedisError>;

/// The connection in use, and whether it answers.
#[derive(Default)]
struct Current {
    open: Option<OpenConnection>,
    /// The deadline of the first call whose caller gave up, and how many bytes had been read by then.
    unanswered: Option<(Instant, u64)>,
}

impl Current {
    /// How many bytes have been read from the open connection.
    fn read(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.shared.traffic.read())
    }

    /// Notes that a caller gave up before this deadline, without a reply.
    fn note(&mut self, deadline: Instant) {
        let read = self.read();
        let first = self.unanswered.filter(|(_, before)| *before == read);
        self.unanswered = first.or(Some((deadline, read)));
    }

    /// Whether the deadline of a call whose caller gave up has passed, and nothing was read since.
    fn is_silent(&mut self) -> bool {
        let read = self.read();
        self.unanswered = self.unanswered.filter(|(_, before)| *before == read);
        self.unanswered.is_some_and(|(deadline, _)| deadline <= Instant::now())
    }
}

/// A call that waits, for its reply or for a connection.
struct Pending<'a> {
    connection: &'a Connection,
    /// The connection on which it was sent, and how many bytes had been written and read before.
    sent: Option<(&'a Arc<Shared>, Passed)>,
    deadline: Instant,
    has_ended: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut current = self.connection.current();
        let is_current = match (self.sent, &current.open) {
            // A request of which nothing was written is not sent any more, so it gets no reply. If something was read since,
            // this may be its reply.
            (Some((shared, before)), Some(open)) => {
                let now = shared.traffic.passed();
                Arc::ptr_eq(shared, &open.shared) && now.written != before.written && now.read == before.read
            }
            (None, open) => open.is_none(),
            (Some(_), None) => false,
        };
        if is_current {
            current.note(self.deadline);
        }
    }
}

/// An open connection.
#[derive(Clone)]
struct OpenConnection {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
}

struct Shared {
    traffic: Arc<Traffic>,
    /// Whether the server has closed it.
    closed: Arc<AtomicBool>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.abort();
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

    async fn dial_in_time(&self) -> Result<OpenConnection, StoreError> {
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
        let driver = tokio::spawn({
            let closed = closed.clone();
            async move {
                driver.await;
                closed.store(true, Ordering::SeqCst);
            }
        });
        let shared = Arc::new(Shared { traffic, closed, driver });
        self.greet(&mut connection).await?;
        Ok(OpenConnection { connection, shared })
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
            let mut open = self.open(deadline).await?;
            let (before, sent_at) = (open.shared.traffic.passed(), Instant::now());
            let request = request(&mut open.connection, cmd, asking);
            let sent = self.wait(Some((&open.shared, before)), deadline, request).await;
            let unwritten = open.shared.traffic.written() == before.written;
            match sent {
                Err(_) => return Err(self.late(&open, sent_at)),
                Ok(Err(error)) if error.is_io_error() || error.is_unrecoverable_error() => {
                    self.hang_up(&open);
                    if unwritten && again {
                        again = false;
                        continue;
                    }
                    let failure = error::from_redis(error).at(self.dialer.address());
                    return Err(if unwritten { failure } else { failure.maybe_applied() });
                }
                Ok(reply) => {
                    let reply = reply.and_then(Value::extract_error);
                    if reply.as_ref().is_err_and(is_read_only) {
                        // The server has become a replica. Its name may resolve to the new primary, so connect again.
                        self.hang_up(&open);
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
        let mut open = self.open(deadline).await?;
        let (before, sent_at) = (open.shared.traffic.passed(), Instant::now());
        let request = open.connection.send_packed_commands(calls, 0, number);
        let sent = self.wait(Some((&open.shared, before)), deadline, request).await;
        let unwritten = open.shared.traffic.written() == before.written;
        match sent {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) => {
                self.hang_up(&open);
                let failure = error::from_redis(error).at(self.dialer.address());
                Err(if unwritten { failure } else { failure.maybe_applied() })
            }
            Err(_) => Err(self.late(&open, sent_at)),
        }
    }

    /// The open connection, or a new one.
    async fn open(&self, deadline: Instant) -> Result<OpenConnection, StoreError> {
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        let address = self.dialer.address();
        let dial = async {
            let outcome = self.dialling.succeed(|| self.dial()).await;
            outcome.unwrap_or_else(|| Err(ERRORS.stopped()))
        };
        match self.wait(None, deadline, dial).await {
            Ok(Ok(())) => self.open_connection().ok_or_else(|| {
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
            let open = dialer.dial_in_time().await.map_err(StoreError::not_applied)?;
            *current.lock().unwrap_or_else(PoisonError::into_inner) =
                Current { open: Some(open), unanswered: None };
            Ok(())
        }
    }

    /// Waits until the deadline. If the caller gives up before, the next callers know.
    async fn wait<T>(
        &self,
        sent: Option<(&Arc<Shared>, Passed)>,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut pending = Pending { connection: self, sent, deadline, has_ended: false };
        let outcome = timeout_at(deadline, work).await;
        pending.has_ended = true;
        outcome
    }

    /// Whether the deadline of a call whose caller gave up has passed without an answer. The next call replaces the
    /// connection.
    pub(crate) fn is_silent(&self) -> bool {
        self.current().is_silent()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_connection(&self) -> Option<OpenConnection> {
        let mut current = self.current();
        let is_closed = |open: &OpenConnection| open.shared.closed.load(Ordering::SeqCst);
        if current.open.as_ref().is_some_and(is_closed) || current.is_silent() {
            *current = Current::default();
        }
        current.open.clone()
    }

    /// Drops this connection, unless a newer one has replaced it.
    fn hang_up(&self, open: &OpenConnection) {
        let mut current = self.current();
        if current.open.as_ref().is_some_and(|held| Arc::ptr_eq(&held.shared, &open.shared)) {
            *current = Current::default();
        }
    }

    /// The error of a call without a reply in time. Drops its connection unless the call had waited for the connection for
    /// most of its time: a reply may need longer than what was left.
    ///
    /// The claims may be charged, even if nothing was written yet: other calls keep the connection open, and a server that
    /// reads again makes room for the request.
    fn late(&self, open: &OpenConnection, sent_at: Instant) -> StoreError {
        let limit = self.dialer.call_timeout;
        if sent_at.elapsed() < limit / 2 {
            self.current().note(deadline_after(limit));
        } else {
            self.hang_up(open);
        }
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
