//! Stores that fail where they must not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, Timestamp};
use tokio::sync::Mutex;
use tokio::task::yield_now;

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::ReferenceStore;

/// Always reports contention.
const ALWAYS: u8 = 0;
/// Fails once after each dropped claim.
const AFTER_DROPS: u8 = 1;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<Fails<ALWAYS>>(
            "always-contended",
            "every claim of an exact store fails as contended",
            "storms/while-meters-expire",
        ),
        BrokenStore::around::<Fails<AFTER_DROPS>>(
            "fails-after-drops",
            "the claim after a dropped one fails",
            "cancelled/claims-sliding",
        ),
        BrokenStore::around::<OneAtATime>(
            "contended-on-one-key",
            "a store that is exact for each key reports contention from refunds of a single key",
            "atomic/refunds-race-claims",
        ),
    ]
}

#[derive(Debug)]
struct Fails<const WHEN: u8> {
    meters: Arc<ReferenceStore>,
    dropped: Arc<AtomicBool>,
}

/// Notes that a claim was dropped, unless it is forgotten before.
struct Claiming<'a>(&'a AtomicBool);

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<const WHEN: u8> Around for Fails<WHEN> {
    type Shared = AtomicBool;

    fn around(meters: Arc<ReferenceStore>, dropped: Arc<AtomicBool>) -> Self {
        Self { meters, dropped }
    }
}

impl<const WHEN: u8> CounterStore for Fails<WHEN> {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if WHEN == ALWAYS {
            return Err(StoreError::new("fails", ErrorKind::Contended, "others claim the meter"));
        }
        let claiming = Claiming(&self.dropped);
        yield_now().await;
        std::mem::forget(claiming);
        if self.dropped.swap(false, Ordering::SeqCst) {
            return Err(StoreError::new("fails", ErrorKind::Unreachable, "a call was dropped"));
        }
        self.meters.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}

/// Reports contention for a refund next to another one.
#[derive(Debug)]
struct OneAtATime {
    meters: Arc<ReferenceStore>,
    refunding: Arc<Mutex<()>>,
}

impl Around for OneAtATime {
    type Shared = Mutex<()>;

    fn around(meters: Arc<ReferenceStore>, refunding: Arc<Mutex<()>>) -> Self {
        Self { meters, refunding }
    }
}

impl CounterStore for OneAtATime {
    fn promises(&self) -> Promises {
        self.meters.promises().with_decisions(Decisions::ExactPerKey)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.meters.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let Ok(_refunding) = self.refunding.try_lock() else {
            return Err(StoreError::new(
                "one at a time",
                ErrorKind::Contended,
                "another refund is under way",
            ));
        };
        yield_now().await;
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}
