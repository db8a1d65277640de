//! Sliding logs: the time of a decision at different limits, and the memory of a logged unit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use ratelimit_memory::{Clock, Limit, MemoryStore, RateLimiter, SystemClock, Timestamp};

use super::memory::resident;
use crate::keys::Key;
use crate::session::{Session, figure};
use crate::stopwatch::Stopwatch;

/// A clock that advances by a step with each call.
struct Ticking {
    nanos: AtomicU64,
    step: AtomicU64,
}

impl Clock for &'static Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.fetch_add(self.step.load(Ordering::Relaxed), Ordering::Relaxed))
    }
}

const PERIOD: Duration = Duration::from_secs(3_600);

/// A limiter with a log of `units` per hour, and its clock. The clock is leaked: the process ends soon.
fn logging(units: u64) -> Result<(RateLimiter<MemoryStore, &'static Ticking>, &'static Ticking)> {
    let clock =
        Ticking { nanos: AtomicU64::new(SystemClock::new().now().as_nanos()), step: AtomicU64::new(0) };
    let clock: &'static Ticking = Box::leak(Box::new(clock));
    let limit = Limit::sliding_log(units, PERIOD).build()?;
    Ok((RateLimiter::new(MemoryStore::new(), limit).with_clock(clock), clock))
}

/// One key with a full log.
pub(super) struct Full {
    pub(super) millis: u64,
}

impl Session for Full {
    /// Nanoseconds per decision under this limit when exactly one unit has expired each time, and when none has.
    fn step(&mut self, limit: u64) -> Result<Vec<f64>> {
        let (limiter, clock) = logging(limit)?;
        // A unit expires strictly after the period: with a slightly longer step, one expires each time.
        let step = u64::try_from(PERIOD.as_nanos())? / limit + 1;
        clock.step.store(step, Ordering::Relaxed);
        for _ in 0..limit {
            ensure!(limiter.check_now("user:0001234")?.allowed(), "the log is full too soon");
        }
        let admitted = self.time(&limiter, true)?;
        clock.step.store(0, Ordering::Relaxed);
        while limiter.check_now("user:0001234")?.allowed() {}
        Ok(vec![admitted, self.time(&limiter, false)?])
    }
}

impl Full {
    fn time(&self, limiter: &RateLimiter<MemoryStore, &'static Ticking>, allowed: bool) -> Result<f64> {
        let start = Stopwatch::start();
        let mut decisions = 0;
        while start.nanos() < self.millis * 1_000_000 {
            for _ in 0..256 {
                let decision = limiter.check_now("user:0001234")?;
                ensure!(decision.allowed() == allowed, "a full log said {decision:?}");
            }
            decisions += 256;
        }
        Ok(figure(start.nanos()) / figure(decisions))
    }
}

/// Many keys with full logs.
pub(super) struct Memory {
    pub(super) units: u64,
}

impl Session for Memory {
    /// Bytes per unit under this limit, including the overhead of its key.
    fn step(&mut self, limit: u64) -> Result<Vec<f64>> {
        let (limiter, clock) = logging(limit)?;
        let keys = (self.units / limit).max(1);
        // All claims happen within a period.
        clock.step.store(u64::try_from(PERIOD.as_nanos())? / (2 * limit * keys), Ordering::Relaxed);
        let mut key = Key::default();
        key.set(0);
        let before = resident()?;
        // Each unit at its own instant, in a realistic order: one unit of every key, and then the next.
        for _ in 0..limit {
            for number in 0..keys {
                key.set(number);
                ensure!(limiter.check_now(&key.text)?.allowed(), "the log is full too soon");
            }
        }
        Ok(vec![figure(resident()?.saturating_sub(before)) / figure(limit * keys)])
    }
}
