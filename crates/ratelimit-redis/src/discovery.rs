//! A survey of which servers to use: done once for all callers that wait for it, and not repeated immediately.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimit_core::{ErrorKind, StoreError};
use tokio::time::{Instant, timeout_at};

use crate::error;
use crate::single_flight::SingleFlight;

/// A result younger than this is used again.
const FRESH: Duration = Duration::from_millis(100);

/// Work in the background that finds out which servers to use. It continues when its callers give up.
pub(crate) struct Discovery {
    flight: SingleFlight<Result<(), StoreError>>,
    latest: Arc<Mutex<Option<Latest>>>,
}

/// When the last survey ended, and its outcome.
type Latest = (Instant, Result<(), StoreError>);

impl Discovery {
    pub(crate) fn new() -> Self {
        Self { flight: SingleFlight::new(), latest: Arc::default() }
    }

    /// Waits for a survey, or returns the outcome of one that has just ended.
    pub(crate) async fn wait<F>(&self, work: impl FnOnce() -> F, deadline: Instant) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        if let Some(outcome) = self.latest_within(FRESH) {
            return outcome;
        }
        match timeout_at(deadline, self.flight.join(|| self.noted(work()))).await {
            Ok((outcome, _)) => outcome.unwrap_or_else(|| Err(error::stopped())),
            Err(_) => Err(error::new(ErrorKind::Unreachable, "no connection within the time limit")),
        }
    }

    /// Starts a survey unless one has just ended, without waiting for it.
    pub(crate) fn begin<F>(&self, work: impl FnOnce() -> F)
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        if self.is_older_than(FRESH) {
            self.flight.begin(|| self.noted(work()));
        }
    }

    /// Whether no survey has ended within this time.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().is_none_or(|(ended, _)| ended.elapsed() >= age)
    }

    fn latest_within(&self, age: Duration) -> Option<Result<(), StoreError>> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().filter(|(ended, _)| ended.elapsed() < age).map(|(_, outcome)| outcome.clone())
    }

    fn noted<F>(&self, work: F) -> impl Future<Output = Result<(), StoreError>> + Send + use<F>
    where
        F: Future<Output = Result<(), StoreError>> + Send,
    {
        let latest = self.latest.clone();
        async move {
            let outcome = work.await;
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), outcome.clone()));
            outcome
        }
    }
}
