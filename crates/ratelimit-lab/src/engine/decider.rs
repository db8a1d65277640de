//! Decides requests: with a limiter, or with the layer of a configuration file.

use std::time::Duration;

use ratelimit_core::{Algorithm, Decision, Limits, RateLimiter, Request, Timestamp};
use ratelimit_memory::MemoryStore;

use super::clock::ReplayClock;
use super::decided::Decided;
use super::ends::Ends;
use super::layer::{HttpRequest, Layered};
use super::limits::hold;
use super::policies::PolicyOutcome;

/// Decides requests as a service would, at the time of the clock.
pub(crate) enum Decider {
    Limiter(Box<Limited>),
    Layer(Box<Layered>),
}

/// A limiter on a store in memory.
pub(crate) struct Limited {
    limiter: RateLimiter<MemoryStore, ReplayClock>,
    clock: ReplayClock,
    /// Whether one of the limits is a concurrency limit.
    holds: bool,
    /// What admitted requests hold until this time. It is renewed or released when it is due.
    held: Ends<(Decision<'static>, Timestamp)>,
    /// The time in which what is held has to be renewed.
    renewal: Duration,
}

impl Limited {
    pub(crate) fn new(limits: Limits, clock: ReplayClock) -> Self {
        let leases = limits.iter().filter(|limit| limit.algorithm() == Algorithm::Concurrency);
        Self {
            holds: hold(&limits),
            renewal: leases.map(|limit| limit.period() / 3).min().unwrap_or_default(),
            limiter: RateLimiter::new(MemoryStore::new(), limits).with_clock(clock.clone()),
            clock,
            held: Ends::default(),
        }
    }

    /// Ends the requests that have ended by this time.
    fn end_until(&mut self, now: Timestamp) -> anyhow::Result<()> {
        while let Some((time, (decision, end))) = self.held.next(now) {
            self.clock.set(time);
            if time < end {
                self.limiter.renew_now(&decision)?;
                self.held.add(end.min(time + self.renewal), (decision, end));
            } else {
                self.limiter.release_now(&decision);
            }
        }
        self.clock.set(now);
        Ok(())
    }

    /// Decides a request at this time that takes this long.
    #[inline]
    fn decide(
        &mut self,
        key: &[u8],
        cost: u64,
        now: Timestamp,
        duration: Duration,
    ) -> anyhow::Result<Decided> {
        if self.holds {
            self.end_until(now)?;
        }
        let decision = self.limiter.check_now(Request::new(key).cost(cost))?;
        let delay = decision.delay();
        let decided = Decided {
            is_admitted: decision.allowed(),
            wait: decision.retry_after(),
            is_delayed: !delay.is_zero(),
            delay,
            ..Decided::default()
        };
        match self.holds {
            true => Ok(Self::hold(&mut self.held, self.renewal, &decision, decided, (now, duration))),
            false => Ok(decided),
        }
    }

    /// Keeps what an admitted request holds.
    #[cold]
    fn hold(
        held: &mut Ends<(Decision<'static>, Timestamp)>,
        renewal: Duration,
        decision: &Decision<'_>,
        decided: Decided,
        (now, duration): (Timestamp, Duration),
    ) -> Decided {
        if decided.is_admitted {
            let end = now + decided.delay + duration;
            held.add(end.min(now + renewal), (decision.clone().into_owned(), end));
        } else if decision.decided_by().rule().algorithm() == Algorithm::Concurrency {
            // Nobody knows when a request ends that has units which another one needs.
            return Decided { wait: None, refused_otherwise: true, ..decided };
        }
        decided
    }
}

impl Decider {
    /// A limiter on a store in memory, with these limits.
    pub(crate) fn limiter(limits: Limits, clock: ReplayClock) -> Self {
        Self::Limiter(Box::new(Limited::new(limits, clock)))
    }

    /// Whether it is a limiter with a concurrency limit.
    pub(crate) fn holds(&self) -> bool {
        matches!(self, Self::Limiter(limited) if limited.holds)
    }

    /// The policies of a configuration file.
    pub(crate) fn policies(self) -> Vec<PolicyOutcome> {
        match self {
            Self::Limiter(_) => Vec::new(),
            Self::Layer(layer) => layer.counts.into_outcomes(),
        }
    }

    /// Decides a request at this time, to which the clock is set, that takes this long.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        key: &[u8],
        cost: u64,
        (now, duration): (Timestamp, Duration),
        http: Option<HttpRequest>,
    ) -> anyhow::Result<Decided> {
        match (self, http) {
            (Self::Limiter(limited), _) => limited.decide(key, cost, now, duration),
            (Self::Layer(layer), Some(http)) => layer.decide(http, now, duration),
            (Self::Layer(_), None) => anyhow::bail!("policies need the whole request"),
        }
    }
}
