//! A request to the store: a slice without the units that leases paid, plus the units of new leases.

use ratelimit_core::{Answer, Claim, Claims, CounterStore, Meter, Refund, StoreError, Verdict};
use smallvec::SmallVec;

use super::lease::{Lease, Part};
use crate::table::Table;

pub(super) type Parts = SmallVec<[Part; 2]>;

/// A slice whose rest is claimed from the store. If this is dropped before the slice is admitted (after a refusal or an error,
/// or with the caller's future), the units that were taken return to the leases.
pub(super) struct Request<'l, 'c, S> {
    pub(super) store: &'l S,
    pub(super) leases: &'l Table<Lease>,
    pub(super) claims: Claims<'c>,
    pub(super) parts: Parts,
}

impl<S> Drop for Request<'_, '_, S> {
    fn drop(&mut self) {
        for (claim, part) in self.claims.iter().zip(&self.parts) {
            let Some(serial) = part.serial.filter(|_| part.taken > 0 || part.want > 0) else { continue };
            self.leases.with(&claim.id, |lease| {
                if lease.serial == serial {
                    lease.unspent += part.taken;
                    lease.is_requesting &= part.want == 0;
                }
            });
        }
    }
}

impl<S: CounterStore> Request<'_, '_, S> {
    /// The claims to the store.
    fn rest(&self) -> SmallVec<[Claim<'_>; 2]> {
        let mut rest = SmallVec::with_capacity(self.parts.len());
        for (claim, part) in self.claims.iter().zip(&self.parts) {
            let cost = claim.cost - part.taken + part.want;
            rest.push(Claim { cost, ..*claim });
        }
        rest
    }

    /// Whether the claims to the store differ from the caller's.
    pub(super) fn is_changed(&self) -> bool {
        self.parts.iter().any(|part| part.want > 0 || part.taken > 0)
    }

    /// Whether the store charged the rest to another segment than that of the units from leases, because other clocks are
    /// ahead. The claim would then count partly in one segment and partly in the other.
    pub(super) fn is_split(&self, answer: &Answer) -> bool {
        let is_split = |((claim, part), verdict): ((&Claim<'_>, &Part), &Verdict)| match &claim.meter {
            Meter::Window(window) if part.taken > 0 => {
                window.place(verdict.receipt).0 != window.place(self.claims.now()).0
            }
            _ => false,
        };
        answer.charged && self.claims.iter().zip(&self.parts).zip(&answer.verdicts).any(is_split)
    }

    /// Refunds what the store charged. If that fails, the units are lost until their window ends.
    pub(super) async fn undo(&self, answer: &Answer) {
        let rest = self.rest();
        let mut refunds = Vec::with_capacity(rest.len());
        for (Claim { id, cost, meter }, verdict) in rest.iter().copied().zip(&answer.verdicts) {
            refunds.push(Refund { id, cost, meter, receipt: verdict.receipt });
        }
        let _ = self.store.refund(self.claims.now(), &refunds).await;
    }

    pub(super) async fn send(&self) -> Result<Answer, StoreError> {
        let rest = self.rest();
        match Claims::new(self.claims.now(), self.claims.mode(), &rest) {
            Ok(rest) => self.store.claim(rest).await,
            // Not reached: these are the caller's claims with other costs.
            Err(_) => self.store.claim(self.claims).await,
        }
    }

    /// Converts the store's answer to the answer for the caller, and adds new units to the leases.
    pub(super) async fn complete(mut self, mut answer: Answer) -> Answer {
        if !answer.charged {
            return answer;
        }
        let parts = std::mem::take(&mut self.parts); // spent: nothing returns to the leases
        let now = self.claims.now();
        for ((claim, part), verdict) in self.claims.iter().zip(&parts).zip(&mut answer.verdicts) {
            let put = |lease: &mut Lease| {
                let is_mine = part.serial == Some(lease.serial);
                is_mine.then(|| (lease.put(part.want, verdict, now), lease.unspent))
            };
            let (is_put, unspent) = self.leases.with(&claim.id, put).flatten().unwrap_or_default();
            verdict.remaining = verdict.remaining.saturating_add(unspent).min(verdict.limit);
            // The store's receipt does not cover what the lease paid.
            if let Some(paid) = part.verdict {
                verdict.receipt = verdict.receipt.max(paid.receipt);
            }
            if part.want > 0 && !is_put {
                let Claim { id, meter, .. } = *claim;
                let refund = Refund { id, cost: part.want, meter, receipt: verdict.receipt };
                // If the refund fails, the units are lost until their window ends.
                let _ = self.store.refund(now, &[refund]).await;
            }
        }
        answer
    }
}
