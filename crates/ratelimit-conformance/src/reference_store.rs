//! The reference store: the model behind a lock.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};

use crate::model::Model;

/// A small store in memory that passes the whole suite.
#[derive(Default)]
pub struct ReferenceStore(Mutex<Meters>);

#[derive(Debug, Default)]
struct Meters {
    model: Model,
    /// Charges since expired meters were last removed.
    charges: usize,
}

/// The minimum number of charges between two removals of expired meters.
const SWEEP_EVERY: usize = 32;

impl ReferenceStore {
    /// The number of stored meters.
    pub fn len(&self) -> u64 {
        self.meters().model.len() as u64
    }

    /// Whether no meter is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // A case that panics must not fail the others.
    fn meters(&self) -> MutexGuard<'_, Meters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReferenceStore {
    // A derived one would print keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceStore").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl CounterStore for ReferenceStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut meters = self.meters();
        let answer = meters.model.claim(&claims);
        meters.charges += if answer.charged { answer.verdicts.len() } else { 0 };
        if meters.charges > meters.model.len().max(SWEEP_EVERY) {
            meters.model.forget(claims.now());
            meters.charges = 0;
        }
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.meters().model.refund(now, refunds);
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.reset_now(claims);
        Ok(())
    }
}

impl SyncCounterStore for ReferenceStore {
    fn reset_now(&self, claims: Claims<'_>) {
        self.meters().model.reset(claims);
    }
}
