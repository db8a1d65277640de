//! What the store is for others: its asynchronous form, `Default` and `Debug`.

use std::fmt;

use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};

use super::MemoryStore;

impl CounterStore for MemoryStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.claim_now(claims)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        for refund in refunds {
            let fingerprint = self.fingerprints.of(&refund.id);
            self.shards.lock_cell(self.shards.cell_of(fingerprint)).refund(fingerprint, refund, now);
        }
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.reset_now(claims);
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("config", &self.config).field("len", &self.len()).finish()
    }
}
