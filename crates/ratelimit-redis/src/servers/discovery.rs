//! Surveys of which servers to use: each is done once for all callers that wait for it, and not repeated immediately.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimit_core::StoreError;
use ratelimit_core::kit::deadline_after;
use ratelimit_store_kit::SingleFlight;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::error::{self, ERRORS};
use crate::servers::server::Server;

/// A result younger than this is used again.
const FRESH: Duration = Duration::from_millis(100);

/// The minimum time limit of a survey.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for further servers once one has answered.
const GRACE: Duration = Duration::from_millis(50);

type Outcome = Result<(), StoreError>;

/// Surveys in the background that find out which servers to use. They continue when their callers give up.
pub(crate) struct Discovery {
    survey: Box<dyn Fn() -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync>,
    flight: SingleFlight<Outcome>,
    /// When the last survey ended, and its outcome.
    latest: Arc<Mutex<Option<(Instant, Outcome)>>>,
}

impl Discovery {
    pub(crate) fn new<F>(survey: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let survey = Box::new(move || Box::pin(survey()) as Pin<Box<_>>);
        Self { survey, flight: SingleFlight::new(), latest: Arc::default() }
    }

    /// Waits for a survey, or returns the outcome of one that has just ended.
    pub(crate) async fn wait(&self, deadline: Instant) -> Outcome {
        if let Some((ended, outcome)) = self.latest()
            && ended.elapsed() < FRESH
        {
            return outcome;
        }
        match timeout_at(deadline, self.flight.join(|| self.noted())).await {
            Ok(outcome) => outcome.unwrap_or_else(|| Err(ERRORS.stopped())),
            Err(_) => Err(ERRORS.no_connection()),
        }
    }

    /// Starts a survey unless one has just ended, without waiting for it.
    pub(crate) fn begin(&self) {
        if self.is_older_than(FRESH) {
            self.flight.begin(|| self.noted());
        }
    }

    /// Whether no survey has ended within this time.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        self.latest().is_none_or(|(ended, _)| ended.elapsed() >= age)
    }

    /// The server that `current` names instead of the one that has failed, after a survey if necessary; the failure if there
    /// is none, or if the call may not be sent again.
    pub(crate) async fn other_than(
        &self,
        failed: &Arc<Server>,
        failure: StoreError,
        current: impl Fn() -> Option<Arc<Server>>,
        deadline: Instant,
    ) -> Result<Arc<Server>, StoreError> {
        if !error::may_go_elsewhere(&failure) {
            return Err(failure);
        }
        let other = || current().filter(|server| !Arc::ptr_eq(server, failed));
        if let Some(other) = other() {
            return Ok(other);
        }
        // The original failure says more than that of the survey.
        let _ = self.wait(deadline).await;
        other().ok_or(failure)
    }

    fn latest(&self) -> Option<(Instant, Outcome)> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn noted(&self) -> impl Future<Output = Outcome> + Send + use<> {
        let (survey, latest) = ((self.survey)(), self.latest.clone());
        async move {
            let outcome = survey.await;
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), outcome.clone()));
            outcome
        }
    }
}

/// The deadline of a survey that begins now; `timeout` is the time limit of a call.
pub(crate) fn survey_deadline(timeout: Duration) -> Instant {
    deadline_after(timeout.max(MIN_TIMEOUT))
}

/// Asks these servers concurrently. Does not wait for those that are down or frozen once one has answered.
pub(crate) async fn query_all<T, F>(
    servers: impl IntoIterator<Item = Arc<Server>>,
    query: impl Fn(Arc<Server>) -> F,
    mut deadline: Instant,
) -> Vec<Result<T, StoreError>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let mut running: JoinSet<_> = servers.into_iter().map(query).collect();
    let mut answers = Vec::new();
    while let Ok(Some(done)) = timeout_at(deadline, running.join_next()).await {
        let Ok(answer) = done else { continue };
        if answer.is_ok() {
            deadline = deadline.min(Instant::now() + GRACE);
        }
        answers.push(answer);
    }
    answers
}
