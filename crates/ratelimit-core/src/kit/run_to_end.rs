//! A future that runs to completion even if the caller drops it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that runs to completion even if its caller drops it halfway: a task on the tokio runtime then continues it.
/// So a store can give back what it has reserved, and keep a connection usable.
///
/// A future that was never polled, or was polled outside of a tokio runtime, is dropped.
///
/// ```
/// use ratelimit_core::kit::RunToEnd;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(RunToEnd::new(async { 7 }).await, 7);
/// # }
/// ```
pub struct RunToEnd<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// The runtime to continue on. Set at the first poll within a runtime.
    handle: Option<Handle>,
}

impl<T: Send + 'static> RunToEnd<T> {
    /// Boxes a future. Nothing runs before the first poll.
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)), handle: None }
    }
}

impl<T: Send + 'static> Future for RunToEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.handle.is_none() {
            self.handle = Handle::try_current().ok();
        }
        let Some(future) = &mut self.future else { return Poll::Pending };
        let outcome = future.as_mut().poll(context);
        if outcome.is_ready() {
            self.future = None;
        }
        outcome
    }
}

impl<T: Send + 'static> fmt::Debug for RunToEnd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunToEnd").field("ended", &self.future.is_none()).finish()
    }
}

impl<T: Send + 'static> Drop for RunToEnd<T> {
    fn drop(&mut self) {
        if let (Some(future), Some(handle)) = (self.future.take(), self.handle.take()) {
            handle.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn steps(done: &Arc<AtomicU32>) -> RunToEnd<()> {
        let done = done.clone();
        RunToEnd::new(async move {
            for _ in 0..3 {
                done.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        })
    }

    #[tokio::test]
    async fn started_futures_run_to_their_end_when_dropped() {
        let done = Arc::new(AtomicU32::new(0));
        drop(steps(&done));
        tokio::task::yield_now().await;
        assert_eq!(done.load(Ordering::SeqCst), 0, "it had not begun");
        let mut begun = steps(&done);
        let once =
            std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut begun).poll(context).is_pending()));
        assert!(once.await);
        drop(begun);
        while done.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        steps(&done).await;
        assert_eq!(done.load(Ordering::SeqCst), 6);
    }
}
