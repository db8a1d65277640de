//! The migration that a lazy store makes at its first connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::SingleFlight;
use tokio::time::{Instant, timeout_at};

use crate::error::ERRORS;

/// Whether the store still has to migrate, and the task that does.
#[derive(Debug)]
pub(crate) struct FirstMigration {
    owed: Arc<AtomicBool>,
    flight: SingleFlight<Result<(), StoreError>>,
}

impl FirstMigration {
    pub(crate) fn new(owed: bool) -> Self {
        Self { owed: Arc::new(AtomicBool::new(owed)), flight: SingleFlight::new() }
    }

    /// Whether calls have to wait for it.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed)
    }

    /// Waits until the migration is done. It may take longer than a call: then it goes on, and the next call waits for it. If
    /// it fails, the next call begins another one.
    pub(crate) async fn done<F>(&self, migrate: impl Fn() -> F, deadline: Instant) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let begin = || {
            let (owed, migration) = (self.owed.clone(), migrate());
            async move {
                // Another call may have done it in the meantime.
                if owed.load(Ordering::Relaxed) {
                    migration.await?;
                    owed.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
        };
        match timeout_at(deadline, self.flight.succeed(begin)).await {
            Ok(outcome) => outcome.unwrap_or_else(|| Err(ERRORS.stopped())),
            Err(_) => {
                let message = "the table was not created within the time limit of this call";
                Err(ERRORS.of(ErrorKind::Timeout, message))
            }
        }
    }
}
