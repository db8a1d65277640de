//! Judges an algorithm: compares each of its decisions with the units that it has itself admitted in the period before.

use std::time::Duration;

use ratelimit_core::meter::{MAX_LOG_UNITS, Meter, State};
use ratelimit_core::store::Mode;
use ratelimit_core::{Clock as _, Limit, ManualClock, RateLimiter, Request, SystemClock, Timestamp};
use ratelimit_memory::{MemoryConfig, MemoryStore};

use super::algorithms::estimates;
use crate::engine::Waits;

/// An algorithm that is judged on the requests of one key after another.
pub(crate) struct Judge {
    limit: Limit,
    limiter: RateLimiter<MemoryStore, ManualClock>,
    clock: ManualClock,
    /// Measures how long decisions take.
    watch: SystemClock,
    decided: Vec<Seen>,
    /// An exact log of the units that the algorithm has admitted. It has room for more than the quota.
    log: Meter,
    admitted: State,
    /// The findings on the current key.
    key: OfKey,
    pub(crate) totals: Totals,
}

/// A decision of the algorithm.
struct Seen {
    is_admitted: bool,
    /// Units that are used after it according to the algorithm.
    used: u64,
    wait: Option<Duration>,
}

#[derive(Default)]
struct OfKey {
    admitted: u64,
    most: u64,
    was_refused_wrongly: bool,
}

/// The findings on all keys.
#[derive(Clone, Default)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    pub(crate) admitted: u64,
    pub(crate) wrongly_admitted: u64,
    pub(crate) wrongly_refused: u64,
    /// The most units of one key that were admitted in a period.
    pub(crate) most: u64,
    /// Keys of which more units than the quota were admitted in a period.
    pub(crate) keys_above: u64,
    /// Keys with at least one wrong refusal.
    pub(crate) keys_refused_wrongly: u64,
    /// The sum of |estimate - truth| / truth over the admitted requests.
    pub(crate) differences: f64,
    pub(crate) waits: Waits,
    pub(crate) nanos: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.admitted += other.admitted;
        self.wrongly_admitted += other.wrongly_admitted;
        self.wrongly_refused += other.wrongly_refused;
        self.most = self.most.max(other.most);
        self.keys_above += other.keys_above;
        self.keys_refused_wrongly += other.keys_refused_wrongly;
        self.differences += other.differences;
        self.waits.merge(&other.waits);
        self.nanos += other.nanos;
    }
}

impl Judge {
    pub(crate) fn new(limit: &Limit) -> anyhow::Result<Self> {
        let clock = ManualClock::default();
        let store = MemoryStore::with_config(MemoryConfig::default().shards(1));
        // No algorithm admits more than twice its quota in a period, which fits into the log: quotas are at most half of
        // its greatest room.
        let room = limit.quota().saturating_mul(4).min(MAX_LOG_UNITS);
        let log = Limit::sliding_log(room, limit.period()).build()?.meter_for(b"");
        Ok(Self {
            limit: limit.clone(),
            limiter: RateLimiter::new(store, limit.clone()).with_clock(clock.clone()),
            clock,
            watch: SystemClock::new(),
            decided: Vec::new(),
            admitted: log.fresh(),
            log,
            key: OfKey::default(),
            totals: Totals::default(),
        })
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Decides and judges the next requests of a key, with their costs.
    pub(crate) fn judge(&mut self, key: &[u8], requests: &[(Timestamp, u64)]) -> anyhow::Result<()> {
        let Self { limiter, clock, watch, decided, .. } = self;
        decided.clear();
        let begun = watch.now();
        for (time, cost) in requests {
            clock.set(*time);
            let decision = limiter.check_now(Request::new(key).cost(*cost))?;
            let is_admitted = decision.allowed();
            let wait = if is_admitted { None } else { decision.retry_after() };
            decided.push(Seen { is_admitted, used: decision.limit() - decision.remaining(), wait });
        }
        let taken = watch.now().since(begun);
        self.totals.nanos += u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.totals.requests += requests.len() as u64;
        let estimates = estimates(self.limit.algorithm());
        let quota = self.limit.quota();
        for ((time, cost), seen) in requests.iter().zip(&self.decided) {
            let mode = if seen.is_admitted { Mode::Force } else { Mode::Peek };
            let (_, verdict) = self.log.claim(&mut self.admitted, *cost, *time, mode);
            let used = verdict.limit - verdict.remaining;
            if !seen.is_admitted {
                if used.saturating_add(*cost) <= quota {
                    self.totals.wrongly_refused += 1;
                    self.key.was_refused_wrongly = true;
                }
                seen.wait.into_iter().for_each(|wait| self.totals.waits.add(wait));
                continue;
            }
            self.key.admitted += 1;
            self.key.most = self.key.most.max(used);
            if *cost > 0 && used > quota {
                self.totals.wrongly_admitted += 1;
            }
            if estimates {
                self.totals.differences += relative(seen.used, used);
            }
        }
        Ok(())
    }

    /// Ends a key: forgets its state, and returns the number of its requests that were admitted.
    pub(crate) fn end(&mut self, key: &[u8]) -> anyhow::Result<u64> {
        self.limiter.reset_now(key)?;
        self.admitted = self.log.fresh();
        let OfKey { admitted, most, was_refused_wrongly } = std::mem::take(&mut self.key);
        self.totals.admitted += admitted;
        self.totals.most = self.totals.most.max(most);
        self.totals.keys_above += u64::from(most > self.limit.quota());
        self.totals.keys_refused_wrongly += u64::from(was_refused_wrongly);
        Ok(admitted)
    }
}

/// The difference between an estimate and the truth, as a part of the truth.
pub(super) fn relative(estimate: u64, truth: u64) -> f64 {
    crate::engine::share(estimate.abs_diff(truth), truth)
}
