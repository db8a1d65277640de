//! Calls that may end with a contention error, on stores that may refuse under contention.

use ratelimit_core::store::Applied;
use ratelimit_core::store::{Decisions, Promises};
use ratelimit_core::{CheckError, Decision, ErrorKind, StoreError};
use tokio::task::yield_now;

use crate::failure::CaseResult;
use crate::in_time::in_time;

/// What a store promises for calls with several keys: one that is exact for each key is conservative there.
pub(super) fn on_several_keys(promises: Promises) -> Promises {
    match promises.decisions {
        Decisions::ExactPerKey => promises.with_decisions(Decisions::Conservative),
        _ => promises,
    }
}

/// Whether the store may return this error: nothing was done because of other calls.
pub(super) fn may_contend(promises: Promises, error: &StoreError) -> bool {
    let is_contended = error.kind() == ErrorKind::Contended && error.applied() == Applied::No;
    is_contended && promises.decisions == Decisions::Conservative
}

/// Whether the claim was admitted. A store that may refuse under contention may also return a contention error.
pub(super) fn admitted(promises: Promises, answer: Result<Decision<'_>, CheckError>) -> CaseResult<bool> {
    match answer {
        Ok(decision) => Ok(decision.allowed()),
        Err(CheckError::Store(error)) if may_contend(promises, &error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes a refund or a reset, again and again if the store may return a contention error.
pub(super) async fn done<R>(promises: Promises, call: impl Fn() -> R) -> CaseResult<Result<(), StoreError>>
where
    R: Future<Output = Result<(), StoreError>>,
{
    loop {
        match in_time("a refund or a reset", async { Ok(call().await) }).await? {
            Err(error) if may_contend(promises, &error) => yield_now().await,
            result => return Ok(result),
        }
    }
}
