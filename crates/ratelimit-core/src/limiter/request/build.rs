//! What is asked of a request besides its key: cost, limits, further keys.

use std::borrow::Cow;
use std::time::Duration;

use super::{Request, RequestKeys};
use crate::{Limit, Limits, Timestamp};

impl<'k, 'l> Request<'k, 'l> {
    /// Sets the cost to `units` instead of one; of a request with several keys, the cost of each key that it has so far.
    ///
    /// A cost of zero leaves every count as it was, and always fits unless the key is [banned](crate::Algorithm::Ban). Use it
    /// if you know nothing of the cost before the work: you can [settle](crate::RateLimiter::settle) the decision at its true
    /// cost.
    #[must_use]
    #[inline]
    pub fn cost(mut self, units: u64) -> Self {
        self.parts_mut().iter_mut().for_each(|part| part.cost = units);
        self
    }

    /// Lowers each cost to at most this many units.
    pub(in crate::limiter) fn cost_at_most(mut self, units: u64) -> Self {
        self.parts_mut().iter_mut().for_each(|part| part.cost = part.cost.min(units));
        self
    }

    /// Uses these limits instead of the limiter's own: `&Limits`, or [`Limits`] or a [`Limit`] that the request owns. In a
    /// request with several keys, they apply to each key that it has so far.
    ///
    /// Parse limits once and pass them by reference: parsing and owning limits allocate, borrowing does not.
    ///
    /// ```
    /// # use ratelimit_core::{CheckError, CounterStore, Limit, Limits, RateLimiter, Request};
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<(), Box<dyn std::error::Error>> {
    /// let plan: Limits = "10/s; 1000/h".parse()?;
    /// limiter.check(Request::new("user:7").limits(&plan)).await?;
    ///
    /// // What is used only here needs no variable:
    /// limiter.check(Request::new("migration").limits("1/min".parse::<Limit>()?)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn limits(mut self, limits: impl Into<Cow<'l, Limits>>) -> Self {
        let limits = limits.into();
        self.parts_mut().iter_mut().for_each(|part| part.limits = Some(limits.clone()));
        self
    }

    /// Adds the keys of `other`, with their costs and limits: either all keys are admitted, or none.
    #[must_use]
    pub fn and(self, other: impl Into<Request<'k, 'l>>) -> Self {
        let mut parts = match self.parts {
            RequestKeys::One(part) => vec![part],
            RequestKeys::Several(parts) => parts,
        };
        match other.into().parts {
            RequestKeys::One(part) => parts.push(part),
            RequestKeys::Several(others) => parts.extend(others),
        }
        Self { parts: RequestKeys::Several(parts) }
    }

    /// This request with its limits as they are at `now`, if any of them depends on the time. `default_limits` are the
    /// limiter's.
    #[inline]
    pub(in crate::limiter) fn at(&self, now: Timestamp, default_limits: &Limits) -> Option<Self> {
        let depends = self.parts().iter().any(|part| part.limits(default_limits).depend_on_time());
        depends.then(|| self.clone().with_each_limit(default_limits, |limit, _| limit.at(now)))
    }

    /// This request with its limits changed; `change` gets the cost under the limit, too.
    #[cold]
    fn with_each_limit(mut self, default_limits: &Limits, change: impl Fn(&Limit, u64) -> Limit) -> Self {
        for part in self.parts_mut() {
            let cost = part.cost;
            part.limits = Some(Cow::Owned(part.limits(default_limits).map(|limit| change(limit, cost))));
        }
        self
    }

    /// Reduces the bursts of queues, so that the request is refused if its turn would come later than `longest_wait` from
    /// now. `default_limits` are the limiter's.
    pub(in crate::limiter) fn within(self, longest_wait: Duration, default_limits: &'l Limits) -> Self {
        if !self.parts().iter().any(|part| part.limits(default_limits).have_queues()) {
            return self;
        }
        self.with_each_limit(default_limits, |limit, cost| limit.within(longest_wait, cost))
    }
}
