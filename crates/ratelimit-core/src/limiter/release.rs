//! Concurrency limits: releasing and renewing what a decision holds.

use std::time::Duration;

use super::RateLimiter;
use crate::{Algorithm, Claims, Clock, CounterStore, Decision, Mode, StoreError, Time};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Releases what `decision` holds under concurrency limits ([`Algorithm::Concurrency`](crate::Algorithm::Concurrency)).
    /// What it charged under other limits stays charged.
    ///
    /// Does nothing if the lease has ended, or if the units were given back before, as with [`refund`](Self::refund).
    ///
    /// With the feature `tokio`, a `Permit` does this for you: it renews the lease, and releases the units when it is
    /// dropped.
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, Limits, RateLimiter};
    /// # async fn work() {}
    /// # async fn example(store: impl CounterStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::new(store, "20 at once; 1000/h".parse::<Limits>()?);
    /// let decision = limiter.check("user:7").await?;
    /// if decision.allowed() {
    ///     work().await;
    ///     limiter.release(&decision).await?; // the thousand in an hour are one less all the same
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store did not answer. The lease then ends by itself.
    pub async fn release(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        self.settle_each(decision, |limit| (limit.rule().algorithm() == Algorithm::Concurrency).then_some(0))
            .await
    }

    /// Renews the leases of the units that `decision` holds under concurrency limits: each lease starts again now.
    /// Returns `false` if a lease has ended or its units were given back, so that another request may have taken them. Returns
    /// `true` if all leases are renewed, or if the decision has taken nothing under concurrency limits. Clones of the decision
    /// hold the same units: a renewal by one of them is one for all.
    ///
    /// A renewal charges the units again and then returns the old ones, in two round trips. In between, other requests
    /// may be refused although units are free, but too many are never admitted. If the second trip fails, the old units
    /// stay taken until their lease ends. Renew well before a lease ends, for example each time a third of it has passed:
    /// the clocks of holders may differ, and a store may be slow.
    ///
    /// Do not drop the future before it completes: units that it has charged are then held until their lease ends, and
    /// `decision` does not know them. If the decision is released meanwhile, the renewal returns its own units.
    ///
    /// # Errors
    /// If the store did not answer, or its [fallback](crate::layers::Fallback) has admitted the renewal without counting it.
    /// Try again before the lease ends.
    pub async fn renew(&self, decision: &Decision<'_>) -> Result<bool, StoreError> {
        let (keys, now) = (decision.charged_keys(), self.clock.now());
        let leases = decision.leases(&keys);
        if let Some(outcome) = leases.outcome_without_renewal(now, self.store.promises().time) {
            return Ok(outcome);
        }
        let claims = decision.claims(&keys, leases.charges());
        let answer = self.store.claim(Claims::known(now, Mode::Force, &claims)).await?;
        drop(claims);
        let (is_renewed, back) = decision.renewed(&keys, leases, &answer)?;
        // If this fails, the units stay taken until their lease ends.
        let _ = self.store.refund(self.clock.now(), &decision.refunds(&keys, &back)).await;
        Ok(is_renewed)
    }

    /// How much time has passed on the limiter's clock since this decision. Zero if another clock has decided.
    pub(super) fn passed_since(&self, decision: &Decision<'_>) -> Duration {
        match self.store.promises().time {
            Time::Server => Duration::ZERO,
            Time::Caller => self.clock.now().since(decision.now()),
        }
    }
}
