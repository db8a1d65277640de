//! Refunds, and corrections of what was charged.

use super::RateLimiter;
use crate::kit::all_of;
use crate::store::at_once;
use crate::{Claims, Clock, CounterStore, Decision, LimitStatus, Mode, StoreError, SyncCounterStore};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Refunds what `decision` charged, as if the request had never been made.
    ///
    /// The decision knows its keys, its costs, and its limits as they were. Call this on the limiter that made the
    /// decision, or on another one on the same store. Units that have left the meter since then (their window has passed,
    /// their tokens have come back) are not returned a second time. Does nothing if the decision charged nothing.
    ///
    /// Refund a decision only once: a store cannot distinguish a second refund from that of another request.
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, RateLimiter};
    /// # async fn send() -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<(), Box<dyn std::error::Error>> {
    /// let decision = limiter.check("user:7").await?;
    /// if decision.allowed() && send().await.is_err() {
    ///     limiter.refund(&decision).await?; // nothing was sent, so nothing counts
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store did not answer.
    pub async fn refund(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        self.settle(decision, 0).await
    }

    /// Corrects a decision that charged an estimate: the true cost was `units` under each of its limits.
    ///
    /// If too much was charged, the difference is refunded; if too little, it is charged now, even beyond the limit. Under a
    /// limit of the calendar it is charged in the present period, even if the decision charged an earlier one.
    /// The units of a [concurrency limit](crate::Algorithm::Concurrency) stay held as they are until they are released,
    /// unless the true cost is zero. Does nothing if the decision charged nothing. Settle a decision only once, as with [`refund`](Self::refund).
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, RateLimiter, Request};
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<(), Box<dyn std::error::Error>> {
    /// let estimate = 1_000; // tokens, estimated from the prompt
    /// let decision = limiter.check(Request::new("user:7").cost(estimate)).await?;
    /// if decision.allowed() {
    ///     let used = 1_370; // tokens that the answer really took
    ///     limiter.settle(&decision, used).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store did not answer.
    pub async fn settle(&self, decision: &Decision<'_>, units: u64) -> Result<(), StoreError> {
        self.settle_each(decision, |_| units).await
    }

    /// Like [`settle`](Self::settle), with a true cost for each limit and key: `units` returns it.
    ///
    /// To leave the charge of a limit as it is, return its [`cost`](LimitStatus::cost). Refunds and charges are made in one
    /// call each; if the refunds fail, the charges are made all the same.
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, Limits, RateLimiter, Request};
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<(), Box<dyn std::error::Error>> {
    /// let requests: Limits = "60/min name requests".parse()?;
    /// let tokens: Limits = "100000/min name tokens".parse()?;
    /// let request = Request::new("user:7").limits(&requests);
    /// let request = request.and(Request::new("user:7").cost(1_000).limits(&tokens));
    ///
    /// let decision = limiter.check(request).await?;
    /// let used = 1_370;
    /// let is_of_tokens = |limit: &ratelimit_core::LimitStatus<'_>| limit.name() == Some("tokens");
    /// limiter.settle_each(&decision, |limit| if is_of_tokens(&limit) { used } else { limit.cost() }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store did not answer.
    pub async fn settle_each(
        &self,
        decision: &Decision<'_>,
        units: impl Fn(LimitStatus<'_>) -> u64,
    ) -> Result<(), StoreError> {
        let keys = decision.charged_keys();
        let now = self.clock.now();
        let settlement = decision.settlement(&keys, now, units);
        let (mut refunded, mut claimed) = (None, None);
        if !settlement.refunds.is_empty() {
            let outcome = self.store.refund(now, &settlement.refunds).await;
            refunded = Some(outcome.inspect(|()| self.waiters.wake(&settlement.refunds)));
        }
        // Even if the refunds have failed: these may be on another server, and what was used has to be charged.
        let claims = settlement.claims();
        if !claims.is_empty() {
            let claims = Claims::known(now, Mode::Force, &claims);
            claimed = Some(self.store.claim(claims).await.map(|_| ()));
        }
        all_of(refunded.into_iter().chain(claimed))
    }
}

/// The same methods without waiting, for stores whose state is in this process.
impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
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
    pub fn settle_each_now(
        &self,
        decision: &Decision<'_>,
        units: impl Fn(LimitStatus<'_>) -> u64,
    ) -> Result<(), StoreError> {
        at_once(self.settle_each(decision, units))?
    }
}
