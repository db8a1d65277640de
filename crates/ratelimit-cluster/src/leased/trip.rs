//! A slice on its way to the store, with what was taken from leases towards it.

use ratelimit_core::{Answer, Claim, Claims, CounterStore, Meter, Refund, StoreError, Verdict};
use smallvec::SmallVec;

use super::Leased;
use super::lease::{Lease, Part};

pub(super) type Parts = SmallVec<[Part; 2]>;

/// A slice whose rest has to be claimed. What was taken goes back into the leases when this is dropped before it was
/// admitted: by a refusal, an error, or because the caller has dropped the future.
pub(super) struct Trip<'l, 'c, S> {
    pub(super) leased: &'l Leased<S>,
    pub(super) claims: Claims<'c>,
    pub(super) parts: Parts,
}

impl<S> Drop for Trip<'_, '_, S> {
    fn drop(&mut self) {
        for (claim, part) in self.claims.iter().zip(&self.parts) {
            let Some(serial) = part.serial.filter(|_| part.taken > 0 || part.want > 0) else { continue };
            self.leased.leases.with(&claim.id, |lease| {
                if lease.serial == serial {
                    lease.unspent += part.taken;
                    lease.is_asking &= part.want == 0;
                }
            });
        }
    }
}

impl<S: CounterStore> Trip<'_, '_, S> {
    /// What the store is asked for.
    pub(super) fn rest(&self) -> SmallVec<[Claim<'_>; 2]> {
        let mut rest = SmallVec::with_capacity(self.parts.len());
        for (claim, part) in self.claims.iter().zip(&self.parts) {
            let cost = claim.cost - part.taken + part.want;
            rest.push(Claim { cost, ..*claim });
        }
        rest
    }

    /// Whether the store decided on something else than the caller's claims.
    pub(super) fn is_changed(&self) -> bool {
        self.parts.iter().any(|part| part.want > 0 || part.taken > 0)
    }

    /// Whether the store has charged the rest to another segment than that of the units that were taken: others are in the
    /// next already. The claim would then be counted partly in one and partly in the other.
    pub(super) fn is_torn(&self, answer: &Answer) -> bool {
        let is_torn = |((claim, part), verdict): ((&Claim<'_>, &Part), &Verdict)| match &claim.meter {
            Meter::Window(window) if part.taken > 0 => {
                window.place(verdict.receipt).0 != window.place(self.claims.now()).0
            }
            _ => false,
        };
        answer.charged && self.claims.iter().zip(&self.parts).zip(&answer.verdicts).any(is_torn)
    }

    /// Gives back what the store has charged. What it does not take is lost until its window ends.
    pub(super) async fn undo(&self, answer: &Answer) {
        let rest = self.rest();
        let mut refunds = Vec::with_capacity(rest.len());
        for (Claim { id, cost, meter }, verdict) in rest.iter().copied().zip(&answer.verdicts) {
            refunds.push(Refund { id, cost, meter, receipt: verdict.receipt });
        }
        let _ = self.leased.inner.refund(self.claims.now(), &refunds).await;
    }

    pub(super) async fn go(&self) -> Result<Answer, StoreError> {
        let rest = self.rest();
        match Claims::new(self.claims.now(), self.claims.mode(), &rest) {
            Ok(rest) => self.leased.inner.claim(rest).await,
            // Not reached: they are the caller's claims with other costs.
            Err(_) => self.leased.inner.claim(self.claims).await,
        }
    }

    /// Takes the store's answer for the caller's, and puts into the leases what came with it.
    pub(super) async fn end(mut self, mut answer: Answer) -> Answer {
        if !answer.charged {
            return answer;
        }
        let parts = std::mem::take(&mut self.parts); // spent: nothing goes back any more
        let now = self.claims.now();
        for ((claim, part), verdict) in self.claims.iter().zip(&parts).zip(&mut answer.verdicts) {
            let put = |lease: &mut Lease| {
                let is_mine = part.serial == Some(lease.serial);
                is_mine.then(|| (lease.put(part.want, verdict, now), lease.unspent))
            };
            let (is_put, unspent) = self.leased.leases.with(&claim.id, put).flatten().unwrap_or_default();
            verdict.remaining = verdict.remaining.saturating_add(unspent).min(verdict.limit);
            // Of what the lease has paid the store was asked for nothing, and does not say as of when it was charged.
            if let Some(paid) = part.verdict {
                verdict.receipt = verdict.receipt.max(paid.receipt);
            }
            if part.want > 0 && !is_put {
                let Claim { id, meter, .. } = *claim;
                let refund = Refund { id, cost: part.want, meter, receipt: verdict.receipt };
                // If the store does not take them back, they are lost until their window ends.
                let _ = self.leased.inner.refund(now, &[refund]).await;
            }
        }
        answer
    }
}
