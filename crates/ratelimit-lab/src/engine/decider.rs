//! Decides requests: with a limiter, or with the layer of a configuration file.

use ratelimit_core::{Limits, RateLimiter, Request};
use ratelimit_memory::MemoryStore;

use super::clock::ReplayClock;
use super::decided::Decided;
use super::layer::{HttpRequest, Layered};
use super::limits::can_be_replayed;
use super::policies::PolicyOutcome;

/// Decides requests as a service would, at the time of the clock.
pub(crate) enum Decider {
    Limiter(Box<RateLimiter<MemoryStore, ReplayClock>>),
    Layer(Box<Layered>),
}

impl Decider {
    /// A limiter on a store in memory, with these limits.
    ///
    /// # Errors
    /// If one of them is a concurrency limit, since a log does not say when requests ended.
    pub(crate) fn limiter(limits: Limits, clock: ReplayClock) -> anyhow::Result<Self> {
        can_be_replayed(&limits)?;
        Ok(Self::Limiter(Box::new(RateLimiter::new(MemoryStore::new(), limits).with_clock(clock))))
    }

    /// The policies of a configuration file.
    pub(crate) fn policies(self) -> Vec<PolicyOutcome> {
        match self {
            Self::Limiter(_) => Vec::new(),
            Self::Layer(layer) => layer.counts.into_outcomes(),
        }
    }

    #[inline]
    pub(crate) fn decide(
        &mut self,
        key: &[u8],
        cost: u64,
        http: Option<HttpRequest>,
    ) -> anyhow::Result<Decided> {
        match (self, http) {
            (Self::Limiter(limiter), _) => {
                let decision = limiter.check_now(Request::new(key).cost(cost))?;
                let delay = decision.delay();
                Ok(Decided {
                    is_admitted: decision.allowed(),
                    wait: decision.retry_after(),
                    is_delayed: !delay.is_zero(),
                    delay,
                    ..Decided::default()
                })
            }
            (Self::Layer(layer), Some(http)) => layer.decide(http),
            (Self::Layer(_), None) => anyhow::bail!("policies need the whole request"),
        }
    }
}
