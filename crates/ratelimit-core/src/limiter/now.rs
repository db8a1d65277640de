//! The methods that do not wait, for stores whose state is in this process: the twin of each method that does, except
//! `check_now`.

use std::time::Duration;

use super::partial::{TRIES, left_of};
use super::{CheckError, RateLimiter, Request, ban};
use crate::store::{InProcess, now_or_error};
use crate::{Clock, Decision, LimitStatus, Mode, StoreError, SyncCounterStore, Timestamp};

/// # Without waiting
/// For stores whose state is in this process, such as the memory store: the twins of the methods above.
impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    /// [`check_many`](Self::check_many) without waiting.
    pub fn check_many_now<'k, 'l, R: Into<Request<'k, 'l>>>(
        &'l self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision<'l>, CheckError>> {
        let now = self.clock.now();
        let requests: Vec<Request<'k, 'l>> = requests.into_iter().map(Into::into).collect();
        let decide =
            |request: &Request<'k, 'l>| self.decide_all_now(request, now, Mode::Charge, Refusals::Ignore);
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

    /// [`take_up_to`](Self::take_up_to) without waiting.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub fn take_up_to_now<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        let mut request = request.into();
        for _ in 1..TRIES {
            let mut decision = self.decide_now(request.clone(), Mode::Charge, Refusals::Ignore)?;
            match left_of(&decision) {
                Some(units) => request = request.cost_at_most(units),
                None => {
                    self.counted_now(&request, &mut decision);
                    return Ok(decision);
                }
            }
        }
        self.check_now(request)
    }

    /// [`reserve`](Self::reserve) for a synchronous store.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub fn reserve_now<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
        longest_wait: Duration,
    ) -> Result<Decision<'l>, CheckError> {
        self.check_now(request.into().within(longest_wait, &self.limits))
    }

    /// [`count_refusal`](Self::count_refusal) without waiting.
    ///
    /// # Errors
    /// If the store has no room for another meter.
    pub fn count_refusal_now(
        &self,
        request: &Request<'_, '_>,
        decision: &mut Decision<'_>,
    ) -> Result<(), StoreError> {
        let store = InProcess(&self.store);
        now_or_error(ban::count_refusal(&store, &self.namespace, &self.clock, request, decision))?
    }

    /// [`ban`](Self::ban) without waiting.
    ///
    /// # Errors
    /// Like [`ban`](Self::ban).
    pub fn ban_now<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
        length: Duration,
    ) -> Result<(), CheckError> {
        let bans = request.into().bans(&self.limits);
        now_or_error(ban::ban(&InProcess(&self.store), &self.namespace, &self.clock, bans, length))?
    }

    /// [`forget_offences`](Self::forget_offences) without waiting.
    pub(super) fn forget_offences_now(&self, request: &Request<'_, '_>) -> Result<(), CheckError> {
        let store = InProcess(&self.store);
        let bans = request.bans(&self.limits);
        now_or_error(ban::forget_offences(&store, &self.namespace, self.clock.now(), bans))?
    }

    /// [`release`](Self::release) without waiting. It cannot fail, because a refund needs no space.
    pub fn release_now(&self, decision: &Decision<'_>) {
        let _ = now_or_error(self.release(decision));
    }

    /// [`renew`](Self::renew) without waiting.
    ///
    /// # Errors
    /// If the store has forgotten the meter and has no room for another.
    pub fn renew_now(&self, decision: &Decision<'_>) -> Result<bool, StoreError> {
        now_or_error(self.renew(decision))?
    }

    /// [`refund`](Self::refund) without waiting. It cannot fail, because a refund needs no space.
    pub fn refund_now(&self, decision: &Decision<'_>) {
        let _ = self.settle_now(decision, 0);
    }

    /// [`settle`](Self::settle) without waiting.
    ///
    /// # Errors
    /// If the store has forgotten the meter and has no room for another.
    pub fn settle_now(&self, decision: &Decision<'_>, units: u64) -> Result<(), StoreError> {
        self.settle_each_now(decision, |_| units)
    }

    /// [`settle_each`](Self::settle_each) without waiting.
    ///
    /// # Errors
    /// Like [`settle_now`](Self::settle_now).
    pub fn settle_each_now<U: Into<Option<u64>>>(
        &self,
        decision: &Decision<'_>,
        units: impl Fn(LimitStatus<'_>) -> U,
    ) -> Result<(), StoreError> {
        now_or_error(self.settle_each(decision, units))?
    }

    #[inline(never)] // or it would be part of the caller's function, wherever that is
    pub(super) fn decide_all_now<'l>(
        &'l self,
        request: &Request<'_, 'l>,
        now: Timestamp,
        mode: Mode,
        refusals: Refusals,
    ) -> Result<Decision<'l>, CheckError> {
        let at_now = request.at(now, &self.limits);
        let asked = at_now.as_ref().unwrap_or(request);
        let claims = asked.claims(&self.namespace, &self.limits);
        let answer = self.store.claim_now(asked.slice(&claims, &self.limits, now, mode)?)?;
        let mut decision = self.decision(asked, answer)?;
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
