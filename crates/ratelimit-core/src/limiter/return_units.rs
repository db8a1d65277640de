//! Returning units without the decision that has charged them.

use super::{RateLimiter, Request};
use crate::{CheckError, Clock, CounterStore, Mode, Refund};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Returns units of the request's keys without the [decision](crate::Decision) that has charged them: for callers that
    /// cannot keep one. If you have the decision, use [`refund`](Self::refund), which is exact.
    ///
    /// It takes the newest units that count, whoever has charged them, and no more than there are: of a window those of its
    /// newest segment, of a bucket all, of a sliding log and a concurrency limit those that were charged together last. Under
    /// several limits, each returns what it can. Bans stay as they are. Takes two round trips; units that others charge in
    /// between may be returned in place of older ones.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub async fn return_units<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<(), CheckError> {
        let (request, now) = (request.into(), self.clock.now());
        let request = request.at(now, &self.limits).unwrap_or(request);
        let claims = request.claims(&self.namespace, &self.limits);
        let answer = self.store.claim(request.slice(&claims, &self.limits, now, Mode::Peek)?).await?;
        let of_bans = request
            .keys(&self.limits)
            .flat_map(|key| key.limits.iter().map(crate::Limit::is_ban).collect::<Vec<_>>());
        let each = claims.iter().zip(&answer.verdicts).zip(of_bans).filter(|(_, is_ban)| !is_ban);
        let refunds: Vec<Refund<'_>> = each
            .map(|((claim, verdict), _)| {
                let receipt = verdict.receipt.moved_to(claim.meter.newest(verdict.reset_at));
                Refund { id: claim.id, cost: claim.cost, meter: claim.meter, receipt }
            })
            .collect();
        self.store.refund(answer.now, &refunds).await?;
        self.waiters.wake(&refunds);
        Ok(())
    }
}
