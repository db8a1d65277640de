//! What a server has to do for [`Optimistic`](crate::Optimistic).

use ratelimit_core::StoreError;

use crate::{Lifetime, Versioned};

/// A handle on a server that can compare and write several values in one request.
///
/// [`Optimistic`](crate::Optimistic) makes one call at a time, and drops its future when the deadline passes or the caller
/// drops the call. A later call must then never get the reply to an earlier one: take the connection out of `self`, and put
/// it back when it has its reply.
pub trait CompareAndSet: Send {
    /// Compares and writes, in one round trip, atomically: if each of these meters has the expected version, writes those
    /// with a new value and returns [`Outcome::Done`]. Otherwise writes nothing, and returns what the meters have.
    ///
    /// The changes are in ascending order of the names, and each name is there once. Usually they are the guess of a caller
    /// that was the last one to write. Refusals and peeks write nothing, and only compare: on the server, because the values,
    /// which may be long logs, should come back only after a conflict.
    ///
    /// # Errors
    /// If the server did not answer. [`StoreError::applied`] says whether it may have written. An error of the kind
    /// [`Contended`](ratelimit_core::ErrorKind::Contended) that was not applied, such as a deadlock, is repeated.
    fn compare_and_set(
        &mut self,
        changes: &[Change<'_>],
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Removes these meters, whatever version they have.
    ///
    /// # Errors
    /// As those of [`compare_and_set`](Self::compare_and_set).
    fn remove(&mut self, names: &[Vec<u8>]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What is expected of a meter, and what to write.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// The meter's name: [`MeterId::to_bytes`](ratelimit_core::store::MeterId::to_bytes). It may contain any bytes and be long.
    pub name: &'a [u8],
    /// The version that the meter has to have; `None` if it must not exist.
    pub expected: Option<[u8; 8]>,
    /// What to write; `None` if the meter stays as it is.
    pub new: Option<NewValue>,
}

/// A value to write.
#[derive(Clone, Debug)]
pub struct NewValue {
    /// The value.
    pub value: Versioned,
    /// How long to keep it at least. Never shorten the lifetime of a meter that exists.
    pub lifetime: Lifetime,
}

/// What became of a [`compare_and_set`](CompareAndSet::compare_and_set).
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All versions were as expected, and everything is written.
    Done,
    /// Some version was another one, and nothing is written. The names and the present values of all meters of the call that
    /// exist, in any order.
    Conflict(Vec<(Vec<u8>, Versioned)>),
}
