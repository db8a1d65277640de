//! One short key under one limit, on a store in this process: the same decision in a third of the instructions.
//!
//! Its parts stay in registers. Decision 30, in the documentation of the project, says what that gives.

use super::request::Simple;
use super::{CheckError, RateLimiter};
use crate::decision::{Parts, ShortKey};
use crate::{Clock, Decision, Limit, Meter, MeterId, Mode, SyncCounterStore, Time, Timestamp};

/// The only claim of a request.
#[derive(Clone, Copy)]
pub(super) struct Only<'k, 'l> {
    key: &'k [u8],
    short_key: ShortKey,
    cost: u64,
    limit: &'l Limit,
    meter: &'l Meter,
}

impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    /// The only claim of a request. `None` if there are several, if its meter depends on the key or the time, if the key is
    /// long, if the cost can never be admitted, or if only an answer says what the time was.
    #[inline(always)]
    pub(super) fn only_claim<'k, 'l>(&'l self, simple: Simple<'k, 'l>) -> Option<Only<'k, 'l>> {
        let (limit, meter) = simple.only_limit(&self.limits)?;
        let Simple { key, cost, .. } = simple;
        let short_key = ShortKey::of(key)?;
        // A cost of one needs no look at the limit: the store refuses it under a limit of zero.
        let never_fits = cost > 1 && cost > meter.limit();
        let is_known = !never_fits && self.store.promises().time != Time::Server;
        is_known.then_some(Only { key, short_key, cost, limit, meter })
    }

    #[inline(always)]
    pub(super) fn decide_only_now<'l>(
        &'l self,
        only: Only<'_, 'l>,
        now: Timestamp,
        mode: Mode,
    ) -> Result<Decision<'l>, CheckError> {
        let Only { key, short_key, cost, limit, meter } = only;
        let namespace = &*self.namespace;
        let id = MeterId { namespace, scope: limit.scope(), key };
        // The decision is built in place from values in registers, so no part of it is moved.
        self.store.claim_one_now(now, mode, &id, cost, meter, move |decided| {
            let (admitted, verdict) = decided?;
            let charged = admitted && mode != Mode::Peek;
            let parts = Parts::one(namespace, short_key, cost, limit, verdict);
            Ok(Decision::of(now, admitted, charged, parts))
        })
    }
}
