//! A store whose synchronous methods differ from the asynchronous ones.

use std::sync::Arc;

use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::InProcess;
use ratelimit_conformance::ReferenceStore;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![BrokenStore::around::<InProcess<NeverCharges>>(
        "never-charges-at-once",
        "a claim that does not wait charges nothing",
        "boundaries/the-quota-and-not-one-more-fixed",
    )]
}

#[derive(Debug)]
struct NeverCharges(Arc<ReferenceStore>);

impl Around for InProcess<NeverCharges> {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self(NeverCharges(meters))
    }
}

impl CounterStore for NeverCharges {
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

impl SyncCounterStore for NeverCharges {
    fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.0.claim_now(claims.with_mode(Mode::Peek))?;
        Ok(Answer { charged: answer.admitted && claims.mode() != Mode::Peek, ..answer })
    }

    fn reset_now(&self, claims: Claims<'_>) {
        self.0.reset_now(claims);
    }
}
