//! Work that is done once for all callers that wait for it.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Work that is done once for all callers that wait for it, in a task of its own: connecting, looking for the primary, creating
/// a table.
///
/// It continues when its callers give up. If a caller with a short time limit cancelled work that takes longer, the work would
/// never complete. So give the work a time limit of its own.
///
/// ```
/// use ratelimit_store_kit::SingleFlight;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let connecting = SingleFlight::new();
/// let connect = || async { "connected" };
/// let both = tokio::join!(connecting.join(connect), connecting.join(connect)); // one attempt
/// assert_eq!(both, (Some("connected"), Some("connected")));
/// # }
/// ```
pub struct SingleFlight<T> {
    latest: Mutex<Option<watch::Receiver<Option<T>>>>,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// Nothing is under way.
    pub const fn new() -> Self {
        Self { latest: Mutex::new(None) }
    }

    /// Starts the work unless it is under way, without waiting for it. Must be called in a tokio runtime.
    pub fn begin<F>(&self, work: impl FnOnce() -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.begun(work);
    }

    /// Waits for the work, starting it unless it is under way. `None` if the runtime shuts down.
    pub async fn join<F>(&self, work: impl FnOnce() -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (result, _) = self.begun(work);
        ended(result).await
    }

    /// Starts the work unless it is under way. Also returns whether it was.
    fn begun<F>(&self, work: impl FnOnce() -> F) -> (watch::Receiver<Option<T>>, bool)
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
}

impl<T: Clone + Send + Sync + 'static, E: Clone + Send + Sync + 'static> SingleFlight<Result<T, E>> {
    /// As [`join`](Self::join), but if the work was under way already and fails, it is done once more: it began before this
    /// call, and may have failed because the server was down then.
    pub async fn succeed<F>(&self, work: impl Fn() -> F) -> Option<Result<T, E>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let (result, under_way) = self.begun(&work);
        match ended(result).await {
            Some(Err(_)) if under_way => self.join(work).await,
            outcome => outcome,
        }
    }
}

/// The result of the work when it has ended.
async fn ended<T: Clone>(mut result: watch::Receiver<Option<T>>) -> Option<T> {
    result.wait_for(Option::is_some).await.ok().and_then(|result| result.clone())
}

impl<T: Clone + Send + Sync + 'static> Default for SingleFlight<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for SingleFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_when_its_caller_gives_up_and_begins_anew_when_it_has_ended() {
        let (flight, begun) = (SingleFlight::new(), Arc::new(AtomicU32::new(0)));
        let work = || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                sleep(Duration::from_secs(3)).await;
                number
            }
        };
        assert!(timeout(Duration::from_secs(1), flight.join(work)).await.is_err());
        flight.begin(work);
        assert_eq!(flight.join(work).await, Some(0));
        assert_eq!(flight.join(work).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_work_that_began_earlier_is_not_that_of_a_later_call() {
        let (flight, begun) = (SingleFlight::new(), AtomicU32::new(0));
        let work = || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                sleep(Duration::from_secs(1)).await;
                if number < 1 { Err(number) } else { Ok(number) }
            }
        };
        let (first, second) = tokio::join!(flight.succeed(work), flight.succeed(work));
        assert_eq!((first, second), (Some(Err(0)), Some(Ok(1))));
    }

    #[test]
    fn work_of_a_runtime_that_has_shut_down_is_begun_again() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let flight = SingleFlight::new();
        runtime().block_on(async { flight.begin(std::future::pending::<u32>) });
        assert_eq!(runtime().block_on(flight.join(|| async { 7 })), Some(7));
    }
}
