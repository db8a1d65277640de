//! Taking as many units as fit.

use super::{CheckError, RateLimiter, Request};
use crate::{Clock, CounterStore, Decision, Mode};

/// The maximum number of attempts of one call.
pub(super) const TRIES: usize = 8;

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Takes as many units as are left, but at most the cost of `request`. [`Decision::granted`] says how many it took. If no
    /// unit is left, it returns the refusal of a single unit, whose [`retry_after`](Decision::retry_after) says when there will
    /// be one.
    ///
    /// If the whole cost fits, this takes one round trip like [`check`](Self::check); otherwise usually two. Under
    /// contention it makes up to eight attempts, each with what was left at the one before. It may then refuse
    /// although something is left, but it never takes more than there is.
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, Limit, RateLimiter, Request};
    /// # async fn example(store: impl CounterStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
    /// let jobs = vec!["job"; 250];
    /// let decision = limiter.take_up_to(Request::new("queue").cost(jobs.len() as u64)).await?;
    /// for job in jobs.iter().take(decision.granted() as usize) {
    ///     println!("{job}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    ///
    /// # Several keys
    /// If not all units fit, every key is charged the same number of units, at most the least of their costs. Keys that cost
    /// nothing stay free. If all units fit and the costs differ, `granted` is the largest.
    pub async fn take_up_to<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        let mut request = request.into();
        for _ in 1..TRIES {
            let decision = self.decide(&request, self.clock.now(), Mode::Charge).await?;
            match left_of(&decision) {
                Some(units) => request = request.cost_at_most(units),
                None => return Ok(self.counted(&request, decision).await),
            }
        }
        let decision = self.decide(&request, self.clock.now(), Mode::Charge).await?;
        Ok(self.counted(&request, decision).await)
    }
}

/// The cost of the next attempt after a refusal: what is left, or a single unit, whose decision says when to retry.
/// `None` if the request was admitted, or was for a single unit of each key.
pub(super) fn left_of(decision: &Decision<'_>) -> Option<u64> {
    // A limit that refuses although it charges nothing, a ban, leaves nothing.
    let counting = || decision.each().filter(|limit| limit.cost() > 0 || !limit.allowed());
    let most = counting().map(|limit| limit.cost()).max().unwrap_or(0);
    let left = counting().map(|limit| limit.remaining().min(limit.cost())).min().unwrap_or(0);
    (!decision.allowed() && most > 1).then(|| left.clamp(1, most - 1))
}
