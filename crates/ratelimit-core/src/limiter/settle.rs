//! Refunds, and corrections of what was charged.

use super::RateLimiter;
use crate::decision::{ChargedKeys, Charges, Settlement};
use crate::kit::all_of;
use crate::{Applied, Claims, Clock, CounterStore, Decision, LimitStatus, Mode, StoreError, Timestamp};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Refunds what `decision` charged, as if the request had never been made.
    ///
    /// The decision knows its keys, its costs, and its limits as they were. Call this on the limiter that made the
    /// decision, or on another one on the same store. Units that have left the meter since then (their window has passed,
    /// their tokens have come back) are not returned a second time. Does nothing if the decision charged nothing.
    ///
    /// What a check has taken is given back once. A second refund does nothing, nor does a [`release`](Self::release) after a
    /// refund, on this decision or a clone of it. If the store did not answer and may
    /// have returned the units ([`Applied::Unknown`]), they count as given back; if it has certainly not, repeat the call.
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
    /// unless the true cost is zero. A decision of cost zero can be settled like any other. Does nothing if the decision is not
    /// [charged](Decision::charged).
    ///
    /// You can settle a decision again: the last true cost counts. So after `settle(&decision, 4)`, `settle(&decision, 3)`
    /// returns one unit, and a [`refund`](Self::refund) three.
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
    /// To leave the charge of a limit as it is, return `None`. Refunds and charges are made in one
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
    /// limiter.settle_each(&decision, |limit| is_of_tokens(&limit).then_some(used)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store did not answer.
    pub async fn settle_each<U: Into<Option<u64>>>(
        &self,
        decision: &Decision<'_>,
        units: impl Fn(LimitStatus<'_>) -> U,
    ) -> Result<(), StoreError> {
        let (keys, now) = (decision.charged_keys(), self.clock.now());
        let Settlement { returned, added } = decision.settlement(&keys, now, |limit| units(limit).into());
        let returned = self.give_back(decision, &keys, now, returned).await;
        // Even if the refunds have failed: these may be on another server, and what was used has to be charged.
        let added = self.charge_more(decision, &keys, now, &added).await;
        all_of(returned.into_iter().chain(added))
    }

    /// Refunds charges that are no longer in the decision's list. If the store has certainly not done so, they are in it
    /// again. `None` if there are none.
    async fn give_back(
        &self,
        decision: &Decision<'_>,
        keys: &ChargedKeys,
        now: Timestamp,
        charges: Charges,
    ) -> Option<Result<(), StoreError>> {
        let refunds = decision.refunds(keys, &charges);
        if refunds.is_empty() {
            return None;
        }
        let outcome = self.store.refund(now, &refunds).await;
        if outcome.is_ok() {
            self.waiters.wake(&refunds);
        }
        drop(refunds);
        if outcome.as_ref().is_err_and(|error| error.applied() == Applied::No) {
            decision.put_back(keys, charges);
        }
        Some(outcome)
    }

    /// Charges what the decision's list has without receipts. `None` if there is nothing.
    async fn charge_more(
        &self,
        decision: &Decision<'_>,
        keys: &ChargedKeys,
        now: Timestamp,
        added: &Charges,
    ) -> Option<Result<(), StoreError>> {
        let claims = decision.claims(keys, added);
        if claims.iter().all(|claim| claim.cost == 0) {
            return None;
        }
        let answer = match self.store.claim(Claims::known(now, Mode::Force, &claims)).await {
            Ok(answer) => answer,
            Err(error) => {
                if error.applied() == Applied::No {
                    decision.withdraw(keys, added);
                }
                return Some(Err(error));
            }
        };
        if !answer.charged {
            return Some(Ok(())); // a store that counts nothing
        }
        let meanwhile = decision.confirm(keys, added, &answer);
        self.give_back(decision, keys, self.clock.now(), meanwhile).await.or(Some(Ok(())))
    }
}
