//! Stores around correct ones, which print keys or repeat refunds.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, Timestamp};

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::ReferenceStore;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<PrintsBytes>(
            "prints-keys-as-bytes",
            "its `Debug` output has the bytes of a key as numbers",
            "keys/errors-hide-keys",
        ),
        BrokenStore::around::<RefundsInPart>(
            "refunds-in-part",
            "under contention a refund of several meters gives back to the first, and is repeated",
            "deadlocks/refunds-in-opposite-orders",
        ),
    ]
}

/// Keeps the last name.
struct PrintsBytes {
    meters: Arc<ReferenceStore>,
    last: Mutex<Vec<u8>>,
}

impl fmt::Debug for PrintsBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrintsBytes").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Around for PrintsBytes {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self { meters, last: Mutex::default() }
    }
}

impl CounterStore for PrintsBytes {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = claims[0].id.to_bytes();
        self.meters.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}

/// Every third refund of several meters is contended after the first meter.
#[derive(Debug)]
struct RefundsInPart {
    meters: Arc<ReferenceStore>,
    calls: Arc<AtomicUsize>,
}

impl Around for RefundsInPart {
    type Shared = AtomicUsize;

    fn around(meters: Arc<ReferenceStore>, calls: Arc<AtomicUsize>) -> Self {
        Self { meters, calls }
    }
}

impl CounterStore for RefundsInPart {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Conservative, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.meters.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        if refunds.len() > 1 && self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            self.meters.refund(now, &refunds[..1]).await?;
            return Err(StoreError::new("model", ErrorKind::Contended, "another call was faster"));
        }
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}
