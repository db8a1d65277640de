//! Runs asynchronous code, which is written for any store, synchronously on a store in this process.

use std::future::{Future, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{CounterStore, ErrorKind, Promises, StoreError, SyncCounterStore};
use crate::{Answer, Claims, Refund, Timestamp};

/// A store whose futures are ready at the first poll.
#[derive(Debug)]
pub(crate) struct InProcess<'a, S>(pub(crate) &'a S);

impl<S: SyncCounterStore> InProcess<'_, S> {
    /// Returns the output of a future that waits for nothing but this store. An error if it waits for something else.
    pub(crate) fn complete<T>(&self, future: impl Future<Output = T>) -> Result<T, StoreError> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Ok(output),
            Poll::Pending => Err(StoreError::new("the store", ErrorKind::Server, "it was not ready at once")),
        }
    }
}

impl<S: SyncCounterStore> CounterStore for InProcess<'_, S> {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    fn claim(&self, claims: Claims<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        ready(self.0.claim_now(claims))
    }

    fn refund(
        &self,
        now: Timestamp,
        refunds: &[Refund<'_>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.0.refund_now(now, refunds);
        ready(Ok(()))
    }

    fn reset(&self, claims: Claims<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.0.reset_now(claims);
        ready(Ok(()))
    }
}
