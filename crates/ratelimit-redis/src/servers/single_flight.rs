//! Work that is done once for all callers that wait for it.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Work that continues when its callers give up. If a caller with a short time limit cancelled work that takes longer, the
/// work would never complete.
pub(crate) struct SingleFlight<T> {
    latest: Mutex<Option<watch::Receiver<Option<T>>>>,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(crate) const fn new() -> Self {
        Self { latest: Mutex::new(None) }
    }

    /// Starts the work unless it is under way. Also returns whether it was.
    pub(crate) fn begin<F>(&self, work: impl FnOnce() -> F) -> (watch::Receiver<Option<T>>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // A closed channel without a result: the runtime of the task has shut down.
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

    /// Waits for the work, starting it unless it is under way. Also returns whether it was. The result is `None` if the
    /// runtime shuts down.
    pub(crate) async fn join<F>(&self, work: impl FnOnce() -> F) -> (Option<T>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (mut result, under_way) = self.begin(work);
        let result = result.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        (result, under_way)
    }
}
