//! Runs asynchronous code, which is written for any store, synchronously on a store in this process.

use std::future::ready;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{CounterStore, ErrorKind, Promises, StoreError, SyncCounterStore};
use crate::{Answer, Claims, Refund, Timestamp};

/// Returns the output of a future that waits for nothing. An error if it waits.
#[inline]
pub(crate) fn now_or_error<T>(future: impl Future<Output = T>) -> Result<T, StoreError> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => {
            let message = "a claim or a refund waited, which a `SyncCounterStore` must not";
            Err(StoreError::new("the store", ErrorKind::Server, message).maybe_applied())
        }
    }
}

/// The same store with resets that do not wait.
#[derive(Debug)]
pub(crate) struct InProcess<'a, S>(pub(crate) &'a S);

impl<S: SyncCounterStore> CounterStore for InProcess<'_, S> {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    fn claim(&self, claims: Claims<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        self.0.claim(claims)
    }

    fn refund(
        &self,
        now: Timestamp,
        refunds: &[Refund<'_>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.0.refund(now, refunds)
    }

    fn reset(&self, claims: Claims<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.0.reset_now(claims);
        ready(Ok(()))
    }
}
