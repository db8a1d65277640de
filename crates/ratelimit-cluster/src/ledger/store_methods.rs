//! The methods of the store traits, except resets, for a node that decides by its ledger alone.

/// The methods of `CounterStore` except `reset`, for a type with a field `ledger`.
macro_rules! counter_store_methods {
    () => {
        /// Decides exactly by what this node knows, and by the caller's clock.
        fn promises(&self) -> Promises {
            Promises::new(Decisions::Eventual, Time::Caller)
        }

        async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
            self.ledger.claim_now(claims)
        }

        async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
            self.ledger.refund_now(now, refunds);
            Ok(())
        }
    };
}

/// The methods of `SyncCounterStore` except `reset_now`, for a type with a field `ledger`.
macro_rules! sync_counter_store_methods {
    () => {
        #[inline]
        fn claim_one_now(
            &self,
            now: Timestamp,
            mode: Mode,
            id: &MeterId<'_>,
            cost: u64,
            meter: &Meter,
        ) -> Result<(bool, Verdict), StoreError> {
            self.ledger.claim_one_now(now, mode, &Claim { id: *id, cost, meter: *meter })
        }
    };
}

pub(crate) use {counter_store_methods, sync_counter_store_methods};
