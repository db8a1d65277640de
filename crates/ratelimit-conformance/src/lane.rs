//! A lane: a runtime on which cases run one after another.
//!
//! A case that spins or blocks stops the threads of its own lane and no others. The runtime outlives the case, so that a
//! subject may share connections between cases.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::failure::{CaseResult, panic_message};
use crate::job::Job;
use crate::journal::Journal;
use crate::report::Outcome;

/// The number of threads of a lane. Cases make concurrent calls, so they need several.
const THREADS: usize = 4;

/// A runtime and its running case.
pub(crate) struct Lane {
    runtime: Runtime,
    running: Option<Running>,
}

/// A running case.
pub(crate) struct Running {
    pub(crate) ticket: u64,
    pub(crate) place: usize,
    pub(crate) job: Job,
    pub(crate) journal: Arc<Journal>,
    pub(crate) began: Instant,
    pub(crate) limit: Duration,
}

/// The end of a case: its ticket and its outcome.
pub(crate) type Ended = (u64, Outcome);

impl Lane {
    /// A free lane.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("conformance-lane")
            .enable_all()
            .build()
            .expect("threads for a case");
        Self { runtime, running: None }
    }

    /// Whether no case runs here.
    pub(crate) fn is_free(&self) -> bool {
        self.running.is_none()
    }

    /// Whether the case with this ticket runs here.
    pub(crate) fn runs(&self, ticket: u64) -> bool {
        self.running.as_ref().is_some_and(|running| running.ticket == ticket)
    }

    /// The deadline of the running case.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.as_ref().map(|running| running.began + running.limit)
    }

    /// Starts a case. Sends its end to `ends`.
    pub(crate) fn start(
        &mut self,
        running: Running,
        case: impl Future<Output = CaseResult> + Send + 'static,
        ends: Sender<Ended>,
    ) {
        let (ticket, journal) = (running.ticket, running.journal.clone());
        self.running = Some(running);
        self.runtime.spawn(async move {
            let outcome = match tokio::spawn(case).await {
                Ok(Ok(())) => Outcome::Passed,
                Ok(Err(failure)) => failure.into_outcome(),
                Err(error) => Outcome::Failed(panic_message(error) + &journal.reported()),
            };
            // The receiver is gone if the case has exceeded its limit.
            let _ = ends.send((ticket, outcome));
        });
    }

    /// Takes the running case.
    pub(crate) fn take(&mut self) -> Option<Running> {
        self.running.take()
    }

    /// Runs other work on the free lane and waits for it. Returns `None` if the work exceeds the limit.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        limit: Duration,
    ) -> Option<T> {
        let (ends, ended) = std::sync::mpsc::channel();
        self.runtime.spawn(async move { ends.send(work.await) });
        ended.recv_timeout(limit).ok()
    }

    /// Abandons the lane. Tasks that await something end. A blocked thread remains until the process ends.
    pub(crate) fn abandon(self) {
        self.runtime.shutdown_background();
    }

    /// Ends background tasks, and waits for them until `by`.
    pub(crate) fn close(self, by: Instant) {
        self.runtime.shutdown_timeout(by.saturating_duration_since(Instant::now()));
    }
}
