//! A future that runs to completion even if the caller drops it.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Runs within the caller's future. If that is dropped halfway, a task continues, so that reservations are undone.
pub(crate) struct Finish<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// The runtime to continue on, once the future has been polled.
    handle: Option<Handle>,
}

impl<T: Send + 'static> Finish<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)), handle: None }
    }

    /// The size of its allocation in bytes.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.future.as_deref().map_or(0, size_of_val)
    }
}

impl<T: Send + 'static> Future for Finish<T> {
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

impl<T: Send + 'static> Drop for Finish<T> {
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

    fn steps(done: &Arc<AtomicU32>) -> Finish<()> {
        let done = done.clone();
        Finish::new(async move {
            for _ in 0..3 {
                done.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        })
    }

    #[tokio::test]
    async fn what_has_begun_comes_to_its_end() {
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
