//! Work that is done once for all who wait for it.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Work that goes on when those who wait for it give up: somebody with a short time limit must not throw away what takes
/// longer, or it would never be done.
pub(crate) struct Flight<T> {
    latest: Mutex<Option<watch::Receiver<Option<T>>>>,
}

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    pub(crate) const fn new() -> Self {
        Self { latest: Mutex::new(None) }
    }

    /// Begins the work, unless it is under way. Says whether it was.
    pub(crate) fn begin<F>(&self, work: impl FnOnce() -> F) -> (watch::Receiver<Option<T>>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // A closed channel without a result: the runtime that worked on it has gone.
        if let Some(result) = &*latest
            && result.borrow().is_none()
            && result.has_changed().is_ok()
        {
            return (result.clone(), true);
        }
        let (sender, result) = watch::channel(None);
        let work = work();
        tokio::spawn(async move { sender.send_replace(Some(work.await)) });
        *latest = Some(result.clone());
        (result, false)
    }

    /// Waits for the work, and begins it unless it is under way. Says whether it was. Nothing comes of it if the runtime
    /// shuts down.
    pub(crate) async fn join<F>(&self, work: impl FnOnce() -> F) -> (Option<T>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (mut result, under_way) = self.begin(work);
        let result = result.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        (result, under_way)
    }
}
