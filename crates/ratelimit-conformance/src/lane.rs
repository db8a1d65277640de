//! A lane: a runtime of its own, on which cases run one after another.
//!
//! A case that spins or blocks stops the threads of its own lane and no others. The runtime outlives the case, so that a
//! subject may share connections between cases.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::bench::panic_message;
use crate::failure::CaseResult;
use crate::journal::Journal;
use crate::report::Outcome;
use crate::runner::Job;

/// The threads of each lane. What a case does side by side needs several.
const THREADS: usize = 4;

/// A runtime, and the case that runs on it.
pub(crate) struct Lane {
    runtime: Runtime,
    running: Option<Running>,
}

/// A case on its way.
pub(crate) struct Running {
    pub(crate) ticket: u64,
    pub(crate) place: usize,
    pub(crate) job: Job,
    pub(crate) journal: Arc<Journal>,
    pub(crate) began: Instant,
    pub(crate) limit: Duration,
}

/// The end of a case: which one, and how.
pub(crate) type Ended = (u64, Outcome);

impl Lane {
    /// A lane on which nothing runs.
    ///
    /// # Panics
    /// If this machine has no thread left.
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

    /// When the case that runs here has had its time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.as_ref().map(|running| running.began + running.limit)
    }

    /// Starts a case; `ends` is told when it ends.
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
                Err(error) => Outcome::Failed(panic_message(error) + &journal.told()),
            };
            // Nobody listens any more if the case has had its time.
            let _ = ends.send((ticket, outcome));
        });
    }

    /// Takes out the case that runs here.
    pub(crate) fn take(&mut self) -> Option<Running> {
        self.running.take()
    }

    /// Runs something else on the free lane and waits for it; `None` if it does not end in time.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        limit: Duration,
    ) -> Option<T> {
        let (ends, ended) = std::sync::mpsc::channel();
        self.runtime.spawn(async move { ends.send(work.await) });
        ended.recv_timeout(limit).ok()
    }

    /// Leaves the lane to itself. What awaits something ends; a thread that is stopped remains until the process ends.
    pub(crate) fn abandon(self) {
        self.runtime.shutdown_background();
    }

    /// Ends what still runs in the background, and waits for it until `by`.
    pub(crate) fn close(self, by: Instant) {
        self.runtime.shutdown_timeout(by.saturating_duration_since(Instant::now()));
    }
}
