//! Stores whose answers are each plausible, but not in the order in which the calls were made.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::kit::{OwnedName, OwnedRefund};
use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::ReferenceStore;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<PeeksOfLast>(
            "peeks-of-the-last-answer",
            "a peek is answered by what is left after the last call of the same handle",
            "atomic/histories-bucket",
        ),
        BrokenStore::around::<LateRefunds>(
            "refunds-after-the-answer",
            "a refund is applied after it has answered, behind the next claim",
            "atomic/histories-sliding",
        ),
    ]
}

/// Answers a peek with the state after the handle's last call, until this handle refunds or resets.
struct PeeksOfLast {
    meters: Arc<ReferenceStore>,
    last: Mutex<HashMap<(Vec<u8>, u64), Answer>>,
}

impl PeeksOfLast {
    fn last(&self) -> std::sync::MutexGuard<'_, HashMap<(Vec<u8>, u64), Answer>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Around for PeeksOfLast {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self { meters, last: Mutex::default() }
    }
}

impl fmt::Debug for PeeksOfLast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeeksOfLast")
    }
}

impl CounterStore for PeeksOfLast {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let [claim] = *claims else { return self.meters.claim(claims).await };
        let name = (claim.id.to_bytes(), claim.cost);
        let last = self.last().get(&name).cloned();
        if let Some(last) = last.filter(|last| claims.mode() == Mode::Peek && last.now == claims.now()) {
            return Ok(last);
        }
        let answer = self.meters.claim(claims).await?;
        let peeked = self.meters.claim(claims.with_mode(Mode::Peek)).await?;
        self.last().insert(name, peeked);
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.last().clear();
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.last().clear();
        self.meters.reset(claims).await
    }
}

type Waiting = Mutex<Vec<(Timestamp, OwnedRefund<OwnedName>)>>;

/// Answers refunds immediately, but applies them after the next claim, or before the next reset.
struct LateRefunds {
    meters: Arc<ReferenceStore>,
    waiting: Arc<Waiting>,
}

impl LateRefunds {
    async fn catch_up(&self) -> Result<(), StoreError> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for (now, OwnedRefund { claim, receipt }) in waiting {
            let refund = Refund { id: claim.key.id(), cost: claim.cost, meter: claim.meter, receipt };
            self.meters.refund(now, &[refund]).await?;
        }
        Ok(())
    }
}

impl Around for LateRefunds {
    type Shared = Waiting;

    fn around(meters: Arc<ReferenceStore>, waiting: Arc<Waiting>) -> Self {
        Self { meters, waiting }
    }
}

impl fmt::Debug for LateRefunds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateRefunds")
    }
}

impl CounterStore for LateRefunds {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.meters.claim(claims).await;
        self.catch_up().await?;
        answer
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let owned = |refund: &Refund<'_>| (now, OwnedRefund::new(refund, OwnedName::new));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(refunds.iter().map(owned));
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.catch_up().await?;
        self.meters.reset(claims).await
    }
}
