//! A layer that divides each limit by a number of instances.

use smallvec::SmallVec;

use crate::meter::Window;
use crate::{
    Answer, Claim, Claims, CounterStore, Log, MAX_PERIOD_NANOS, Meter, MeterId, Mode, Promises, Refund,
    StoreError, Timestamp,
};

/// A layer that divides each limit by a number of instances. So the instances together admit no more than the limit,
/// although each of them counts by itself.
///
/// | limit | divided by `n` |
/// |---|---|
/// | windows, sliding logs, calendars, concurrency | `limit / n` in the same period |
/// | token and leaky buckets | rate `/ n` and burst `/ n` |
/// | queues | rate, burst and immediate units `/ n`; one unit less of the burst if its turn would come later than in the whole queue |
/// | windows from the first request | `limit / n` in the same period |
/// | totals | `limit / n` |
/// | bans | not divided: each instance bans by the refusals that it has counted itself |
///
/// Quotients are rounded down, but each limit admits at least one unit: if there are more instances than units, each
/// instance admits one unit. A cost above the divided limit is refused, and never fits.
///
/// [`reserve`](crate::RateLimiter::reserve) and [`acquire_with`](crate::RateLimiter::acquire_with) with a deadline shorten
/// a queue to the longest wait, and the shortened burst is divided too. So they refuse costs that a check would admit, if
/// the part of an instance in the longest wait is smaller.
///
/// A unit of a bucket drains within ten years, even if the divided rate is slower. The instances together then exceed it.
///
/// Use it below a [`Fallback`](super::Fallback), with a store in memory. If the number of instances is too large, less
/// than the limit is admitted while the first store does not answer; if it is too small, more.
///
/// ```
/// # use ratelimit_core::layers::{Divided, Fallback};
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # fn example(redis: impl CounterStore, memory: impl CounterStore, limit: Limit) {
/// let limiter = RateLimiter::new(Fallback::new(redis, Divided::new(memory, 4)), limit);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Divided<S> {
    inner: S,
    instances: u64,
}

impl<S: CounterStore> Divided<S> {
    /// Wraps `inner`. `instances` is how many processes count by themselves, at least one.
    pub fn new(inner: S, instances: u32) -> Self {
        Self { inner, instances: u64::from(instances.max(1)) }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn units(&self, limit: u64) -> u64 {
        (limit / self.instances).max(limit.min(1))
    }

    /// The meter with its limit divided. A refund has to compute the same one, so this depends on nothing else.
    fn meter(&self, id: &MeterId<'_>, meter: Meter) -> Meter {
        if id.is_of_ban() {
            return meter;
        }
        let limit = self.units(meter.limit());
        // What is below a valid number is valid, so none of these fails.
        let divided = match meter {
            Meter::Window(window) => {
                let (segment, carried, offset) = (window.segment(), window.carried(), window.offset());
                Window::new(limit, segment, carried, window.strict(), offset).map(Meter::Window)
            }
            Meter::Bucket(bucket) => {
                let mut interval = bucket.interval().saturating_mul(self.instances).min(MAX_PERIOD_NANOS);
                if bucket.tolerance() <= bucket.step() {
                    // What drains in one step still does if at least one unit of it is left.
                    interval = interval.min(bucket.step() / limit.max(1));
                }
                let immediate = if bucket.is_queue() { self.units(bucket.immediate()) } else { u64::MAX };
                // No turn comes later than in the whole queue.
                let waiting = bucket.burst().saturating_sub(bucket.immediate()) / self.instances;
                let burst = limit.min(immediate.saturating_add(waiting));
                bucket.with_rate(interval, burst).map(|it| Meter::Bucket(it.with_immediate(immediate)))
            }
            Meter::Log(log) => Log::new(limit, log.window()).map(Meter::Log),
        };
        divided.unwrap_or(meter)
    }

    /// The claims on divided meters.
    ///
    /// A log drops its oldest units when a forced charge exceeds its limit. So forced claims on logs keep the undivided
    /// limit. Otherwise the log would forget leases of this store when leases of the other store are renewed here.
    fn claims<'a>(&self, claims: &Claims<'a>) -> SmallVec<[Claim<'a>; 4]> {
        let keeps_all = |meter| claims.mode() == Mode::Force && matches!(meter, Meter::Log(_));
        let divided = |claim: &Claim<'_>| match claim.meter {
            meter if keeps_all(meter) => meter,
            meter => self.meter(&claim.id, meter),
        };
        claims.iter().map(|claim| Claim { meter: divided(claim), ..*claim }).collect()
    }

    /// Corrects the figures of claims that were [not divided](Self::claims) to the divided limit.
    fn correct(&self, claims: &Claims<'_>, answer: &mut Answer) {
        for (claim, verdict) in claims.iter().zip(&mut answer.verdicts) {
            let limit = self.meter(&claim.id, claim.meter).limit();
            let above = verdict.limit.saturating_sub(limit);
            verdict.remaining = verdict.remaining.saturating_sub(above);
            verdict.limit = verdict.limit.min(limit);
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> CounterStore for Divided<S> {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let divided = self.claims(&claims);
        let mut answer = self.inner.claim(Claims::known(claims.now(), claims.mode(), &divided)).await?;
        self.correct(&claims, &mut answer);
        Ok(answer)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let divided: Vec<_> = slices.iter().map(|claims| self.claims(claims)).collect();
        let parts = slices.iter().zip(&divided);
        let parts: Vec<_> = parts
            .map(|(claims, divided_claims)| Claims::known(claims.now(), claims.mode(), divided_claims))
            .collect();
        let mut answers = self.inner.claim_many(&parts).await;
        for (claims, answer) in slices.iter().zip(&mut answers) {
            if let Ok(answer) = answer {
                self.correct(claims, answer);
            }
        }
        answers
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let mut divided: SmallVec<[Refund<'_>; 4]> = SmallVec::from_slice(refunds);
        divided.iter_mut().for_each(|refund| refund.meter = self.meter(&refund.id, refund.meter));
        self.inner.refund(now, &divided).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}
