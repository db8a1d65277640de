//! The connection in use, and whether its server still answers.
//!
//! A request that is not answered in time closes the connection: the server may be frozen or its packets may be lost, and
//! every later request would time out as well.
//!
//! So does a request whose caller gives up earlier, if nothing has arrived from the server when its deadline has passed. And a
//! request that was sent shortly before its deadline, because its caller had waited for the connection, if nothing has arrived
//! within another time limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::servers::dialer::{Driver, OpenConnection};
use crate::servers::stream::Passed;

/// The connection in use.
#[derive(Default)]
pub(crate) struct Current(Mutex<State>);

/// The connection in use, if there is one, and whether it answers.
#[derive(Default)]
struct State {
    open: Option<OpenConnection>,
    /// The deadline of the first call whose caller gave up, and how many bytes had been read by then.
    unanswered: Option<(Instant, u64)>,
}

impl State {
    /// How many bytes have been read from the open connection.
    fn read(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.driver.traffic.read())
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

/// A request that is about to be sent: on which connection, when, and how many bytes had been written and read before.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    driver: &'a Arc<Driver>,
    before: Passed,
    at: Instant,
}

impl<'a> Sent<'a> {
    /// A request that is sent on this connection now.
    pub(crate) fn now(driver: &'a Arc<Driver>) -> Self {
        Self { driver, before: driver.traffic.passed(), at: Instant::now() }
    }

    /// Whether nothing has been written since.
    pub(crate) fn is_unwritten(self) -> bool {
        self.driver.traffic.written() == self.before.written
    }

    /// Whether something has been written since, and nothing read.
    fn is_unanswered(self) -> bool {
        let now = self.driver.traffic.passed();
        now.written != self.before.written && now.read == self.before.read
    }
}

/// A call that waits, for its reply or for a connection.
struct Pending<'a> {
    current: &'a Current,
    /// The request; `None` if it waits for a connection.
    sent: Option<Sent<'a>>,
    deadline: Instant,
    has_ended: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.current.state();
        let is_current = match (self.sent, &state.open) {
            // A request of which nothing was written is not sent any more, so it gets no reply. If something was read since,
            // this may be its reply.
            (Some(sent), Some(open)) => Arc::ptr_eq(sent.driver, &open.driver) && sent.is_unanswered(),
            (None, open) => open.is_none(),
            (Some(_), None) => false,
        };
        if is_current {
            state.note(self.deadline);
        }
    }
}

impl Current {
    /// The connection in use, unless the server has closed it or is silent.
    pub(crate) fn open(&self) -> Option<OpenConnection> {
        let mut state = self.state();
        if state.open.as_ref().is_some_and(|open| open.driver.is_closed()) || state.is_silent() {
            *state = State::default();
        }
        state.open.clone()
    }

    /// Uses this connection from now on.
    pub(crate) fn replace(&self, open: OpenConnection) {
        *self.state() = State { open: Some(open), unanswered: None };
    }

    /// Drops this connection, unless a newer one has replaced it.
    pub(crate) fn hang_up(&self, driver: &Arc<Driver>) {
        let mut state = self.state();
        if state.open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.driver, driver)) {
            *state = State::default();
        }
    }

    /// Waits until the deadline, for the reply to a request or, with `None`, for a connection. If the caller gives up before,
    /// the next callers know.
    pub(crate) async fn wait<T>(
        &self,
        sent: Option<Sent<'_>>,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut pending = Pending { current: self, sent, deadline, has_ended: false };
        let outcome = timeout_at(deadline, work).await;
        pending.has_ended = true;
        outcome
    }

    /// Notes a request without a reply in time. Drops its connection unless the call had waited for the connection for most
    /// of its time, `limit`: a reply may need longer than what was left.
    pub(crate) fn had_no_reply(&self, sent: Sent<'_>, limit: Duration) {
        if sent.at.elapsed() < limit / 2 {
            self.state().note(deadline_after(limit));
        } else {
            self.hang_up(sent.driver);
        }
    }

    /// Whether the deadline of a call whose caller gave up has passed without an answer. The next call replaces the
    /// connection.
    pub(crate) fn is_silent(&self) -> bool {
        self.state().is_silent()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
