//! How a node answers that decides by its ledger alone: what the store traits ask of it, but for resets.

/// The methods of `CounterStore` but for `reset`, for a node with a `ledger`.
macro_rules! answer {
    () => {
        /// Exact by what this node knows, and by the caller's time.
        fn promises(&self) -> Promises {
            Promises { decisions: Decisions::Eventual, time: Time::Caller }
        }

        async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
            self.ledger.claim_now(claims)
        }

        async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
            slices.iter().map(|claims| self.ledger.claim_now(*claims)).collect()
        }

        async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
            self.ledger.refund_now(now, refunds);
            Ok(())
        }
    };
}

/// The methods of `SyncCounterStore` but for `reset_now`, for a node with a `ledger`.
macro_rules! answer_now {
    () => {
        fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
            self.ledger.claim_now(claims)
        }

        #[inline]
        fn claim_one_now<R>(
            &self,
            now: Timestamp,
            mode: Mode,
            id: &MeterId<'_>,
            cost: u64,
            meter: &Meter,
            then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
        ) -> R {
            self.ledger.claim_one_now(now, mode, id, cost, meter, then)
        }

        fn refund_now(&self, now: Timestamp, refunds: &[Refund<'_>]) {
            self.ledger.refund_now(now, refunds);
        }
    };
}

pub(crate) use {answer, answer_now};
