//! Giving back, and correcting what was charged.

use super::RateLimiter;
use crate::{Claims, Clock, CounterStore, Decision, LimitStatus, Mode, StoreError, SyncCounterStore};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Gives back what `decision` charged, as if the request had never come.
    ///
    /// The decision knows its keys, its limits as they were and its costs; call this on the limiter that made it, or on
    /// another one on the same store. What has left the limit's memory since then (its window has passed, its tokens have come
    /// back) is not given out a second time. Nothing happens for a decision that charged nothing.
    ///
    /// Give back once: a store cannot tell a second time from another request's.
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

    /// Settles a decision that charged an estimate: the true cost was `units` under each of its limits.
    ///
    /// What was charged too much is given back, what was charged too little is charged now, even beyond the limit.
    /// Nothing happens for a decision that charged nothing. Settle once, as you [refund](Self::refund) once.
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

    /// As [`settle`](Self::settle), where the true cost is another one under each limit or for each key: `units` tells it.
    ///
    /// To leave what a limit was charged as it is, tell its [`cost`](LimitStatus::cost).
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
        let settlement = decision.settlement(&keys, units);
        if !settlement.refunds.is_empty() {
            self.store.refund(self.clock.now(), &settlement.refunds).await?;
        }
        if !settlement.claims.is_empty() {
            let claims = Claims::known(self.clock.now(), Mode::Force, &settlement.claims);
            self.store.claim(claims).await?;
        }
        Ok(())
    }
}

/// The same on the spot, for stores whose state is in this process.
impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    /// [`refund`](Self::refund) without waiting. It cannot fail: giving back needs no room.
    pub fn refund_now(&self, decision: &Decision<'_>) {
        let keys = decision.charged_keys();
        self.store.refund_now(self.clock.now(), &decision.settlement(&keys, |_| 0).refunds);
    }

    /// [`settle`](Self::settle) without waiting.
    ///
    /// # Errors
    /// If the store has forgotten the meter and cannot take another.
    pub fn settle_now(&self, decision: &Decision<'_>, units: u64) -> Result<(), StoreError> {
        self.settle_each_now(decision, |_| units)
    }

    /// [`settle_each`](Self::settle_each) without waiting.
    ///
    /// # Errors
    /// As [`settle_now`](Self::settle_now).
    pub fn settle_each_now(
        &self,
        decision: &Decision<'_>,
        units: impl Fn(LimitStatus<'_>) -> u64,
    ) -> Result<(), StoreError> {
        let keys = decision.charged_keys();
        let settlement = decision.settlement(&keys, units);
        self.store.refund_now(self.clock.now(), &settlement.refunds);
        if !settlement.claims.is_empty() {
            self.store.claim_now(Claims::known(self.clock.now(), Mode::Force, &settlement.claims))?;
        }
        Ok(())
    }
}
