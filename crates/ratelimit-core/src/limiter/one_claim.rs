//! One short key under one limit, on a store in this process: the same decision in a third of the time, because there are no
//! lists. Decision 30, in the documentation of the project, has the measurements.

use super::request::Simple;
use super::{CheckError, RateLimiter};
use crate::decision::{InPlace, Parts, ShortKey};
use crate::{Clock, Decision, Limit, Limits, Meter, MeterId, Mode, SyncCounterStore, Time, Timestamp};

/// What a request's only claim is made of.
#[derive(Clone, Copy)]
pub(super) struct OneClaim<'k, 'l> {
    key: &'k [u8],
    kept_key: ShortKey,
    cost: u64,
    limits: &'l Limits,
    limit: &'l Limit,
    meter: &'l Meter,
}

impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    /// The only claim of a request. `None` if there are several, if its meter depends on the key or the time, if the key is
    /// long, if the cost can never be admitted, or if only an answer says what the time was.
    #[inline(always)]
    pub(super) fn one_claim<'k, 'l>(&'l self, request: Simple<'k, 'l>) -> Option<OneClaim<'k, 'l>> {
        let Simple { key, cost, limits } = request;
        let limits = limits.unwrap_or(&self.limits);
        let [limit] = &**limits else { return None };
        let meter = limit.common_meter()?;
        let kept_key = ShortKey::of(key)?;
        // A cost of one needs no look at the limit: the store refuses it under a limit of zero.
        let never_fits = cost > 1 && cost > meter.limit();
        let is_known = !never_fits && self.store.promises().time != Time::Server;
        is_known.then_some(OneClaim { key, kept_key, cost, limits, limit, meter })
    }

    #[inline(always)]
    pub(super) fn decide_one_now<'l>(
        &'l self,
        claim: OneClaim<'_, 'l>,
        now: Timestamp,
        mode: Mode,
    ) -> Result<Decision<'l>, CheckError> {
        let OneClaim { key, kept_key, cost, limits, limit, meter } = claim;
        let id = MeterId { namespace: &self.namespace, scope: limit.scope(), key };
        let (admitted, verdict) = self.store.claim_one_now(now, mode, &id, cost, meter)?;
        let charged = admitted && mode != Mode::Peek;
        let parts = Parts::InPlace(InPlace::one(&self.namespace, kept_key, cost, limits, verdict));
        Ok(Decision::of(now, admitted, charged, parts))
    }
}
