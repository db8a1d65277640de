//! What to do if the store does not answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::{Clock, CounterStore, RateLimiter};

use crate::limiter::{Core, Limiter};

/// What to do with a request if the store does not answer. The failure is counted and logged in any case.
///
/// A request that cannot be checked at all, because its policies have too many limits, is answered with 500.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OnFailure {
    /// Let it through, without the fields that report how the limits stand.
    Open,
    /// Answer with 503.
    #[non_exhaustive]
    Closed {
        /// The value of `Retry-After`; rounded up to whole seconds, at least one.
        retry_after: Duration,
    },
    /// Let another limiter decide, under the same limits; if that fails as well, answer with 503.
    Fallback(Fallback),
}

/// A limiter that decides while the store does not answer. Cheap to clone; clones count together.
///
/// It counts separately: it does not know what the store has counted, and the store does not learn what it admits. A
/// fallback in memory admits up to the full limit on each instance, or its part of it if you wrap the memory store in
/// [`Divided`](ratelimit_core::layers::Divided).
///
/// The layer calls it for each request that the store, with all [layers](ratelimit_core::layers) around it, did not decide.
/// A [`Resilience`](ratelimit_core::layers::Resilience) around the store has a fallback for each call, too, and stops
/// calling a store that fails. With it, this fallback is called only if that one fails as well.
///
/// ```
/// use ratelimit_memory::MemoryStore;
/// use ratelimit_tower::{Fallback, OnFailure};
///
/// let on_failure = OnFailure::Fallback(Fallback::new(MemoryStore::new()));
/// # let _ = on_failure;
/// ```
#[derive(Clone)]
pub struct Fallback(pub(crate) Arc<dyn Limiter>);

impl OnFailure {
    /// Answers with 503 and this `Retry-After`.
    pub fn closed(retry_after: Duration) -> Self {
        Self::Closed { retry_after }
    }

    /// The value of `Retry-After` on a 503.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::Closed { retry_after } => *retry_after,
            Self::Open | Self::Fallback(_) => Duration::from_secs(1),
        }
    }
}

impl Default for OnFailure {
    /// Answers with 503 and a `Retry-After` of one second.
    fn default() -> Self {
        Self::closed(Duration::from_secs(1))
    }
}

impl Fallback {
    /// Counts in this store. For a namespace or another clock, pass a [`RateLimiter::without_limits`] in its place.
    pub fn new<S: CounterStore + 'static, C: Clock + 'static>(store: impl Into<RateLimiter<S, C>>) -> Self {
        Self(Arc::new(Core { limiter: Arc::new(store.into()), check_now: None, is_fallback: true }))
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fallback")
    }
}
