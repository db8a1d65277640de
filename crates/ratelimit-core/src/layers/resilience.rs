//! The usual layers around a store that may be unavailable, in the right order.

use std::time::Duration;

use super::{Breaker, BreakerConfig, Bulkhead, Divided, Fallback, Open, Timeout};
use crate::CounterStore;

/// A store with a bound on concurrent calls, a time limit and a breaker: what [`Resilience::closed`] builds.
pub type Guarded<S> = Breaker<Timeout<Bulkhead<S>>>;

/// Builds the usual layers around a store that may be unavailable, in the right order:
///
/// ```text
/// Fallback        answers when the layers below return an error
///   Breaker       fails immediately while the store is away
///     Timeout     fails if the store hangs
///       Bulkhead  bounds the calls that wait for the store
///         store
/// ```
///
/// The order matters. Waiting for a place in the bulkhead counts against the time limit. The breaker counts calls that
/// took too long as failures, and prevents further ones while it is open. The fallback gets every error.
///
/// The last call says what happens to a request that the store does not decide: [`fallback`](Self::fallback),
/// [`open`](Self::open) or [`closed`](Self::closed).
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use ratelimit_core::layers::Resilience;
/// # use ratelimit_core::{CounterStore, DynCounterStore, Limit, RateLimiter};
/// # fn example(redis: impl CounterStore + 'static, memory: impl CounterStore + 'static, limit: Limit) {
/// // Four instances of the service run; each may admit a quarter while Redis is away.
/// let store = Resilience::new(redis).timeout(Duration::from_millis(50)).fallback(memory, 4);
/// let limiter = RateLimiter::new(store, limit);
/// # let store = limiter.store().clone();
///
/// // If the choice is made at run time:
/// let store: Arc<dyn DynCounterStore> = Arc::new(store);
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "finish with `fallback`, `open` or `closed`"]
pub struct Resilience<S> {
    store: S,
    timeout: Duration,
    concurrent_calls: usize,
    wait: Duration,
    breaker: BreakerConfig,
}

impl<S: CounterStore> Resilience<S> {
    /// Starts with the defaults: a time limit of 100 ms, 1,000 concurrent calls, no waiting for a place, and the defaults
    /// of [`BreakerConfig`].
    pub fn new(store: S) -> Self {
        Self {
            store,
            timeout: Duration::from_millis(100),
            concurrent_calls: 1_000,
            wait: Duration::ZERO,
            breaker: BreakerConfig::default(),
        }
    }

    /// Sets how long a call may take. The store's own time limit applies as well.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how many calls to the store may be in progress at once, at least one.
    pub fn concurrent_calls(self, concurrent_calls: usize) -> Self {
        Self { concurrent_calls, ..self }
    }

    /// Sets how long a call may wait if this many calls are in progress already. The wait is part of the time limit, and
    /// should be shorter: a call that gets no place within the time limit counts as a failure of the store.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Configures the breaker.
    pub fn breaker(self, breaker: BreakerConfig) -> Self {
        Self { breaker, ..self }
    }

    /// Fail closed: returns the errors, and you refuse the requests. The HTTP layer answers with 503 unless you configure
    /// something else.
    #[must_use]
    pub fn closed(self) -> Guarded<S> {
        let store = Bulkhead::new(self.store, self.concurrent_calls).with_wait(self.wait);
        Breaker::new(Timeout::new(store, self.timeout), self.breaker)
    }

    /// Fail open: admits what the store does not decide; see [`Open`].
    #[must_use]
    pub fn open(self) -> Fallback<Guarded<S>, Open> {
        Fallback::open(self.closed())
    }

    /// Decides on `fallback`, usually a store in memory, what the store does not decide. `instances` is how many processes
    /// do so at the same time: each divides the limits by this number; see [`Divided`].
    #[must_use]
    pub fn fallback<F: CounterStore>(self, fallback: F, instances: u32) -> Fallback<Guarded<S>, Divided<F>> {
        Fallback::new(self.closed(), Divided::new(fallback, instances))
    }
}
