//! The errors that every store with a server has.

use std::borrow::Cow;

use ratelimit_core::{ErrorKind, StoreError};

/// Makes the errors of one store. Those that every store with a server has are worded alike, so that an operator reads the
/// same message whatever the server is.
///
/// An error says that nothing was charged, unless its method says otherwise. Call
/// [`maybe_applied`](StoreError::maybe_applied) on the error of a request that was sent.
///
/// ```
/// use ratelimit_core::store::Applied;
/// use ratelimit_core::ErrorKind;
/// use ratelimit_store_kit::Errors;
///
/// const ERRORS: Errors = Errors::new("mystore");
///
/// let error = ERRORS.of(ErrorKind::Full, "its disk is full; free space on it").at("10.0.0.1:7000");
/// assert_eq!((error.store(), error.applied()), ("mystore", Applied::No));
/// assert_eq!(ERRORS.late().applied(), Applied::Unknown);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    store: &'static str,
}

impl Errors {
    /// The errors of the store with this name.
    pub const fn new(store: &'static str) -> Self {
        Self { store }
    }

    /// The name of the store.
    pub const fn store(self) -> &'static str {
        self.store
    }

    /// An error of this kind, with a message that says what happened and what to do.
    pub fn of(self, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> StoreError {
        StoreError::new(self.store, kind, message).not_applied()
    }

    /// The configuration or the address is not valid.
    pub fn misconfigured(self, message: impl Into<Cow<'static, str>>) -> StoreError {
        self.of(ErrorKind::Misconfigured, message)
    }

    /// The time limit passed before there was a connection.
    pub fn no_connection(self) -> StoreError {
        self.of(ErrorKind::Unreachable, "no connection within the time limit")
    }

    /// The time limit passed before the reply. It may have been charged.
    pub fn late(self) -> StoreError {
        self.of(ErrorKind::Timeout, "no answer within the time limit").maybe_applied()
    }

    /// The task that did the work has ended early, because its runtime has shut down.
    pub fn stopped(self) -> StoreError {
        self.of(ErrorKind::Unreachable, "the tokio runtime of the call has shut down")
    }

    /// The program has closed the pool of connections that it gave to the store.
    pub fn pool_closed(self) -> StoreError {
        self.of(ErrorKind::Unsupported, "the pool has been closed; keep it open while the store is used")
    }

    /// What is stored under the meter's key is not the state of a meter.
    pub fn corrupt_value(self) -> StoreError {
        self.of(
            ErrorKind::Corrupt,
            "the value under the meter's key is not the state of a meter; does another program write keys with this prefix?",
        )
    }
}
