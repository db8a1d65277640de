//! A store that is away, and a layer that shows the suite the receipts of a fallback as it expects them.

use ratelimit_memory::core::meter::Meter;
use ratelimit_memory::core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_memory::core::{CounterStore, ErrorKind, StoreError, Timestamp};

/// A store that answers nothing.
#[derive(Debug)]
pub(crate) struct Away;

fn away() -> StoreError {
    StoreError::new("away", ErrorKind::Unreachable, "on purpose")
}

impl CounterStore for Away {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, _: Claims<'_>) -> Result<Answer, StoreError> {
        Err(away())
    }

    async fn refund(&self, _: Timestamp, _: &[Refund<'_>]) -> Result<(), StoreError> {
        Err(away())
    }

    /// Nothing is there, so that a reset of both stores succeeds.
    async fn reset(&self, _: Claims<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Shows receipts as the fallback's store knows them, because the suite compares them with those of the meters.
#[derive(Debug)]
pub(crate) struct Unmarked<S>(pub(crate) S);

fn unmark(claims: &Claims<'_>, answer: Result<Answer, StoreError>) -> Result<Answer, StoreError> {
    let mut answer = answer?;
    for (claim, verdict) in claims.iter().zip(&mut answer.verdicts) {
        verdict.receipt = verdict.receipt.for_store();
        // A fallback says when to ask the other store, which may have units of a total left.
        let is_total =
            matches!(claim.meter, Meter::Bucket(bucket) if bucket.step() == i64::MAX.unsigned_abs());
        if is_total && !verdict.fits {
            verdict.fits_at = None;
        }
    }
    Ok(answer)
}

impl<S: CounterStore> CounterStore for Unmarked<S> {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        unmark(&claims, self.0.claim(claims).await)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let answers = self.0.claim_many(slices).await.into_iter();
        slices.iter().zip(answers).map(|(claims, answer)| unmark(claims, answer)).collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let mut refunds = refunds.to_vec();
        for refund in &mut refunds {
            refund.receipt = refund.receipt.of_fallback();
        }
        self.0.refund(now, &refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}
