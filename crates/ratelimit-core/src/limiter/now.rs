//! Synchronous methods, for stores whose state is in this process.

use super::request::Simple;
use super::{CheckError, RateLimiter, Request};
use crate::decision::{Parts, ShortKey};
use crate::store::now_or_error;
use crate::{Clock, CounterStore, Decision, MeterId, Mode, SyncCounterStore, Time, Timestamp};

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
        S: SyncCounterStore, // here, because the compiler shows the hint of the trait only for bounds of a method
    {
        self.decide_now(request.into(), Mode::Charge, Refusals::Count)
    }
}

impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    /// [`check_many`](Self::check_many) without waiting.
    pub fn check_many_now<'k, 'l, R: Into<Request<'k, 'l>>>(
        &'l self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision<'l>, CheckError>> {
        let now = self.clock.now();
        let requests: Vec<Request<'k, 'l>> = requests.into_iter().map(Into::into).collect();
        let decide = |request: &Request<'k, 'l>| now_or_error(self.decide(request, now, Mode::Charge))?;
        let mut decisions: Vec<_> = requests.iter().map(decide).collect();
        for (request, decision) in requests.iter().zip(&mut decisions) {
            if let Ok(decision) = decision {
                self.counted_now(request, decision);
            }
        }
        decisions
    }

    /// [`peek`](Self::peek) without waiting.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub fn peek_now<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        self.decide_now(request.into().cost(0), Mode::Peek, Refusals::Ignore)
    }

    /// [`would_allow`](Self::would_allow) without waiting.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub fn would_allow_now<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        self.decide_now(request.into(), Mode::Peek, Refusals::Ignore)
    }

    /// [`charge`](Self::charge) without waiting.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub fn charge_now<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        self.decide_now(request.into(), Mode::Force, Refusals::Ignore)
    }

    /// [`reset`](Self::reset) without waiting.
    ///
    /// # Errors
    /// If the request cannot be checked: it has no limits, more than 64, or the same meter twice.
    pub fn reset_now<'k, 'l>(&'l self, request: impl Into<Request<'k, 'l>>) -> Result<(), CheckError> {
        let (request, now) = (request.into(), self.clock.now());
        let request = request.at(now, &self.limits).unwrap_or(request);
        let claims = request.claims(&self.namespace, &self.limits);
        self.store.reset_now(request.slice(&claims, &self.limits, now, Mode::Force)?);
        self.forget_offences_now(&request)
    }

    #[inline(always)]
    pub(super) fn decide_now<'l>(
        &'l self,
        request: Request<'_, 'l>,
        mode: Mode,
        refusals: Refusals,
    ) -> Result<Decision<'l>, CheckError> {
        let now = self.clock.now();
        let simple = match request.into_simple() {
            Ok(simple) => simple,
            Err(request) => return self.decide_and_count_now(&request, now, mode, refusals),
        };
        let Simple { key, cost, .. } = simple;
        let (Some((limit, meter)), Some(short)) = (simple.only_limit(&self.limits), ShortKey::of(key)) else {
            return self.decide_and_count_now(&simple.into(), now, mode, refusals);
        };
        // A cost of one needs no look at the limit: the store refuses it under a limit of zero. If the store decides by its
        // server's time, only an answer says what the time was.
        if cost > 1 && cost > meter.limit() || self.store.promises().time == Time::Server {
            return self.decide_and_count_now(&simple.into(), now, mode, refusals);
        }
        let namespace = &*self.namespace;
        let id = MeterId { namespace, scope: limit.scope(), key };
        // The decision is built in place from values in registers, so no part of it is moved.
        self.store.claim_one_now(now, mode, &id, cost, meter, move |decided| {
            let (admitted, verdict) = decided?;
            let charged = admitted && mode != Mode::Peek;
            let parts = Parts::one(namespace, short, cost, limit, verdict);
            Ok(Decision::of_one(now, admitted, charged, parts))
        })
    }

    fn decide_and_count_now<'l>(
        &'l self,
        request: &Request<'_, 'l>,
        now: Timestamp,
        mode: Mode,
        refusals: Refusals,
    ) -> Result<Decision<'l>, CheckError> {
        let mut decision = now_or_error(self.decide(request, now, mode))??;
        if refusals == Refusals::Count {
            self.counted_now(request, &mut decision);
        }
        Ok(decision)
    }

    /// Counts a refusal for bans.
    pub(super) fn counted_now(&self, request: &Request<'_, '_>, decision: &mut Decision<'_>) {
        if !decision.allowed() && decision.has_bans() {
            // The request stays refused even if counting fails.
            let _ = self.count_refusal_now(request, decision);
        }
    }
}

/// Whether a refusal counts for bans.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusals {
    Count,
    Ignore,
}
