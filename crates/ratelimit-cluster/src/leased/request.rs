//! A request to the store: a slice without the units that leases paid, plus the units of new leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::kit::{OwnedClaim, OwnedClaims, OwnedName};
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Answer, Claim, Claims, Refund, Verdict};
use ratelimit_core::{CounterStore, StoreError};
use smallvec::SmallVec;

use super::lease::{Lease, Payment, is_elsewhere};
use super::returns::{Return, return_units};
use crate::table::Table;
use crate::unanswered;

pub(super) type Payments = SmallVec<[Payment; 2]>;

/// A slice whose rest is claimed from the store. If this is dropped before the slice is admitted (after a refusal or an
/// error), the units that were taken return to the leases.
pub(super) struct Request<S> {
    pub(super) store: Arc<S>,
    pub(super) leases: Arc<Table<Lease>>,
    /// The number of resets, now and when the request was made.
    pub(super) resets: (Arc<AtomicU64>, u64),
    pub(super) claims: OwnedClaims<OwnedName>,
    pub(super) payments: Payments,
}

impl<S> Drop for Request<S> {
    fn drop(&mut self) {
        for (claim, payment) in self.claims.borrowed().zip(&self.payments) {
            let Some(serial) = payment.serial.filter(|_| payment.taken > 0 || payment.want > 0) else {
                continue;
            };
            self.leases.with(&claim.id, |lease| {
                if lease.serial == serial {
                    lease.unspent += payment.taken;
                    lease.is_requesting &= payment.want == 0;
                }
            });
        }
    }
}

impl<S: CounterStore> Request<S> {
    /// Returns units to the store, and then claims the rest of the slice. `None` if the store has to decide the slice without
    /// leases.
    pub(super) async fn run(self, back: Vec<Return>) -> Result<Option<Answer>, StoreError> {
        let _ = return_units(&*self.store, self.claims.now, &back).await;
        let answer = self.send().await?;
        if self.is_split(&answer) {
            self.undo(&answer).await;
        } else if answer.admitted || !self.is_changed() {
            return Ok(Some(self.complete(answer).await));
        }
        Ok(None)
    }

    /// Whether a reset may have removed what the store has charged. A refund would then take units of other charges; they are
    /// lost until their window ends.
    fn may_be_reset(&self) -> bool {
        let (now, before) = &self.resets;
        now.load(Ordering::SeqCst) != *before
    }

    /// The claims to the store.
    fn rest(&self) -> SmallVec<[Claim<'_>; 2]> {
        let mut rest = SmallVec::with_capacity(self.payments.len());
        for (claim, payment) in self.claims.borrowed().zip(&self.payments) {
            let cost = claim.cost - payment.taken + payment.want;
            rest.push(Claim { cost, ..claim });
        }
        rest
    }

    /// Whether the claims to the store differ from the caller's.
    fn is_changed(&self) -> bool {
        self.payments.iter().any(|payment| payment.want > 0 || payment.taken > 0)
    }

    /// Whether the store charged the rest to another segment than that of the units from leases, because other clocks are
    /// ahead. The claim would then count partly in one segment and partly in the other.
    fn is_split(&self, answer: &Answer) -> bool {
        type Charged<'r> = ((&'r OwnedClaim<OwnedName>, &'r Payment), &'r Verdict);
        let is_split = |((claim, payment), verdict): Charged<'_>| match &claim.meter {
            Meter::Window(window) if payment.taken > 0 => {
                is_elsewhere(window, window.place(self.claims.now).0, verdict.receipt)
            }
            _ => false,
        };
        answer.charged && self.claims.claims.iter().zip(&self.payments).zip(&answer.verdicts).any(is_split)
    }

    /// Refunds what the store charged. If that fails, the units are lost until their window ends.
    async fn undo(&self, answer: &Answer) {
        let rest = self.rest();
        let mut refunds = Vec::with_capacity(rest.len());
        for (Claim { id, cost, meter }, verdict) in rest.iter().copied().zip(&answer.verdicts) {
            refunds.push(Refund { id, cost, meter, receipt: verdict.receipt });
        }
        let _ = self.store.refund(self.claims.now, &refunds).await;
    }

    async fn send(&self) -> Result<Answer, StoreError> {
        let rest = self.rest();
        match Claims::new(self.claims.now, self.claims.mode, &rest) {
            Ok(rest) => self.store.claim(rest).await,
            // Not reached: these are the caller's claims with other costs.
            Err(_) => Err(unanswered("leased")),
        }
    }

    /// Converts the store's answer to the answer for the caller, and adds new units to the leases.
    async fn complete(mut self, mut answer: Answer) -> Answer {
        if !answer.charged {
            return answer;
        }
        let payments = std::mem::take(&mut self.payments); // spent: nothing returns to the leases
        let now = self.claims.now;
        let mut refunds = Vec::new();
        for ((claim, payment), verdict) in self.claims.borrowed().zip(&payments).zip(&mut answer.verdicts) {
            let put = |lease: &mut Lease| {
                let is_mine = payment.serial == Some(lease.serial);
                is_mine.then(|| (lease.put(payment.want, verdict, now), lease.unspent))
            };
            let (is_put, unspent) = self.leases.with(&claim.id, put).flatten().unwrap_or_default();
            verdict.remaining = verdict.remaining.saturating_add(unspent).min(verdict.limit);
            // The store's receipt does not cover what the lease paid.
            if let Some(paid) = payment.verdict {
                verdict.receipt = verdict.receipt.max(paid.receipt);
            }
            if payment.want > 0 && !is_put && !self.may_be_reset() {
                let Claim { id, meter, .. } = claim;
                refunds.push(Refund { id, cost: payment.want, meter, receipt: verdict.receipt });
            }
        }
        if !refunds.is_empty() {
            // If the refund fails, the units are lost until their window ends.
            let _ = self.store.refund(now, &refunds).await;
        }
        answer
    }
}
