//! `check_now`: the check that does not wait. One short key under one limit is decided here, in a third of the time, because
//! there are no lists. Decision 30, in the documentation of the project, has the measurements.

use super::now::Refusals;
use super::request::Simple;
use super::{CheckError, RateLimiter, Request};
use crate::decision::{Parts, ShortKey, ShortParts};
use crate::{
    Clock, CounterStore, Decision, Limit, Limits, Meter, MeterId, Mode, SyncCounterStore, Time, Timestamp,
};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// [`check`](Self::check) without waiting.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    #[inline(always)]
    pub fn check_now<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError>
    where
        // The bound is on the method, so that the compiler prints the trait's `on_unimplemented` text.
        S: SyncCounterStore,
    {
        self.decide_now(request.into(), Mode::Charge, Refusals::Count)
    }
}

impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    #[inline(always)]
    pub(super) fn decide_now<'l>(
        &'l self,
        request: Request<'_, 'l>,
        mode: Mode,
        refusals: Refusals,
    ) -> Result<Decision<'l>, CheckError> {
        let now = self.clock.now();
        // A simple request becomes a `Simple`, and a request again if it is not decided as one claim: so nothing has to be
        // dropped where it is. `Err` is no error here, but any other request. A match on `as_simple()` looks simpler, but takes a
        // tenth more instructions.
        let request = match request.into_simple() {
            Ok(simple) => match self.one_claim(simple) {
                Some(claim) => return self.decide_one_now(claim, now, mode),
                None => simple.into(),
            },
            Err(request) => request,
        };
        // Taken apart and put together, so that it is returned in another place than that of one claim: the optimizer keeps a
        // decision in registers only if no call gets its address.
        let decision = self.decide_all_now(&request, now, mode, refusals)?;
        Ok(decision)
    }
}

/// What a request's only claim is made of.
#[derive(Clone, Copy)]
struct OneClaim<'k, 'l> {
    key: &'k [u8],
    kept_key: ShortKey,
    cost: u64,
    limits: &'l Limits,
    limit: &'l Limit,
    meter: &'l Meter,
}

impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    /// The only claim of a request. `None` if there are several, if its meter depends on the key or the time, if the key is
    /// long, if the cost can never be admitted, or if the store decides by its server's clock.
    #[inline(always)]
    fn one_claim<'k, 'l>(&'l self, request: Simple<'k, 'l>) -> Option<OneClaim<'k, 'l>> {
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
    fn decide_one_now<'l>(
        &'l self,
        claim: OneClaim<'_, 'l>,
        now: Timestamp,
        mode: Mode,
    ) -> Result<Decision<'l>, CheckError> {
        let OneClaim { key, kept_key, cost, limits, limit, meter } = claim;
        let id = MeterId { namespace: &self.namespace, scope: limit.scope(), key };
        let (admitted, verdict) = self.store.claim_one_now(now, mode, &id, cost, meter)?;
        let charged = admitted && mode != Mode::Peek;
        let parts = Parts::Short(ShortParts::one(&self.namespace, kept_key, cost, limits, verdict));
        Ok(Decision::of(now, admitted, charged, parts))
    }
}
