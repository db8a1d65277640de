//! A store whose synchronous methods differ from the asynchronous ones.

use std::sync::Arc;

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Promises, Refund, Verdict};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::InProcess;
use ratelimit_conformance::ReferenceStore;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<InProcess<NeverCharges<false>>>(
            "never-charges-at-once",
            "claims that do not wait charge nothing",
            "boundaries/the-quota-and-not-one-more-fixed",
        ),
        BrokenStore::around::<InProcess<NeverCharges<true>>>(
            "never-charges-one-at-once",
            "a claim that does not wait and is alone charges nothing",
            "boundaries/the-quota-and-not-one-more-fixed",
        ),
    ]
}

/// Charges nothing for claims that do not wait; if `ALONE`, for a single claim only.
#[derive(Debug)]
struct NeverCharges<const ALONE: bool>(Arc<ReferenceStore>);

impl<const ALONE: bool> Around for InProcess<NeverCharges<ALONE>> {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self(NeverCharges(meters))
    }
}

impl<const ALONE: bool> CounterStore for NeverCharges<ALONE> {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.0.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.0.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

impl<const ALONE: bool> SyncCounterStore for NeverCharges<ALONE> {
    fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if ALONE {
            return self.0.claim_now(claims);
        }
        let answer = self.0.claim_now(claims.with_mode(Mode::Peek))?;
        Ok(Answer { charged: answer.admitted && claims.mode() != Mode::Peek, ..answer })
    }

    fn claim_one_now(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
    ) -> Result<(bool, Verdict), StoreError> {
        let mode = if ALONE { Mode::Peek } else { mode };
        let claim = [Claim { id: *id, cost, meter: *meter }];
        let claims = Claims::new(now, mode, &claim).expect("one claim");
        self.claim_now(claims).map(|answer| (answer.admitted, answer.verdicts[0]))
    }

    fn reset_now(&self, claims: Claims<'_>) {
        self.0.reset_now(claims);
    }
}
