//! The migration that a lazy store makes at its first connection.

use std::sync::atomic::{AtomicBool, Ordering};

use ratelimit_core::{ErrorKind, StoreError};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error;

/// Whether the store still has to migrate, and the task that does.
#[derive(Debug)]
pub(crate) struct FirstMigration {
    owed: AtomicBool,
    under_way: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
}

impl FirstMigration {
    pub(crate) fn new(owed: bool) -> Self {
        Self { owed: AtomicBool::new(owed), under_way: Mutex::default() }
    }

    /// Whether calls have to wait for it.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed)
    }

    /// Waits until the migration is done. It may take longer than a call: then it goes on, and the next call waits for it. If
    /// it fails, the next call begins another one.
    pub(crate) async fn done(
        &self,
        begin: impl FnOnce() -> JoinHandle<Result<(), StoreError>>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let late =
            || error::new(ErrorKind::Timeout, "the table was not created within the time limit of this call");
        let mut under_way = timeout_at(deadline, self.under_way.lock()).await.map_err(|_| late())?;
        if !self.is_owed() {
            return Ok(());
        }
        let outcome = timeout_at(deadline, under_way.get_or_insert_with(begin)).await.map_err(|_| late())?;
        *under_way = None;
        outcome
            .unwrap_or_else(|_| Err(error::new(ErrorKind::Unreachable, "the tokio runtime has shut down")))?;
        self.owed.store(false, Ordering::Relaxed);
        Ok(())
    }
}
