//! Answers the requests of a connection on the connection's own task.
//!
//! With a task for each request of HTTP/2, each answer would wake the connection by itself.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use tokio::sync::mpsc;

/// Takes requests that begin.
#[derive(Clone)]
pub(crate) struct Inline(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Inline {
    fn execute(&self, request: F) {
        // Without a receiver, the connection has ended.
        let _ = self.0.send(Box::pin(request));
    }
}

/// Runs a connection, and the requests that it begins, until it ends.
pub(crate) async fn run<C: Future<Output = ()>>(connection: impl FnOnce(Inline) -> C) {
    let (sender, mut begun) = mpsc::unbounded_channel();
    let (mut connection, mut running) = (pin!(connection(Inline(sender))), FuturesUnordered::new());
    poll_fn(|context| {
        loop {
            if connection.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            running.extend(std::iter::from_fn(|| begun.try_recv().ok()));
            // An answer is sent by the connection, which has to run once more.
            if !matches!(running.poll_next_unpin(context), Poll::Ready(Some(()))) {
                return Poll::Pending;
            }
            while let Poll::Ready(Some(())) = running.poll_next_unpin(context) {}
        }
    })
    .await;
}
