//! A store that answers synchronously, as the suite sees it.

use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund, Time, Verdicts};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};

/// Runs the suite on the synchronous methods of a store: each call of the suite is a call of
/// [`claim_now`](SyncCounterStore::claim_now), [`refund_now`](SyncCounterStore::refund_now) or
/// [`reset_now`](SyncCounterStore::reset_now). Of the claims that are alone in their call, those of an odd cost are made by
/// [`claim_one_now`](SyncCounterStore::claim_one_now), if the store decides at the caller's time.
///
/// The suite itself calls only the asynchronous ones. Give it a second [`Subject`](crate::Subject) whose
/// [`Space::open`](crate::Space::open) returns an `InProcess`.
#[derive(Clone, Debug, Default)]
pub struct InProcess<S>(pub S);

impl<S: SyncCounterStore> CounterStore for InProcess<S> {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        match &*claims {
            [claim] if !claim.cost.is_multiple_of(2) && self.promises().time == Time::Caller => {
                let (now, mode) = (claims.now(), claims.mode());
                let (admitted, verdict) =
                    self.0.claim_one_now(now, mode, &claim.id, claim.cost, &claim.meter)?;
                let charged = admitted && mode != Mode::Peek;
                Ok(Answer { admitted, charged, now, verdicts: Verdicts::from_slice(&[verdict]) })
            }
            _ => self.0.claim_now(claims),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.0.refund_now(now, refunds);
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset_now(claims);
        Ok(())
    }
}
