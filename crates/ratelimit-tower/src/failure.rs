//! What happens when the store does not answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::{Clock, CounterStore, RateLimiter};

use crate::ask::DynTell;

/// What becomes of a request that the store did not decide. Counted and logged in any case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OnFailure {
    /// It is let through, without the fields that tell how it stands.
    Open,
    /// It is answered with 503.
    #[non_exhaustive]
    Closed {
        /// What `Retry-After` says; rounded up to whole seconds, at least one.
        retry_after: Duration,
    },
    /// Another limiter decides, under the same limits; if it fails, too, 503.
    Fallback(Fallback),
}

/// A limiter that decides while the store does not answer. Cheap to clone; clones count together.
///
/// It counts by itself: what the store had counted is not known to it, nor to the store afterwards what it let through. A
/// store in memory lets through up to the whole limit on each instance.
///
/// ```
/// use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
/// use ratelimit_tower::{Fallback, OnFailure};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let local = RateLimiter::new(MemoryStore::new(), "1/s".parse::<Limit>()?); // the policies' limits are used, not these
/// let on_failure = OnFailure::Fallback(Fallback::new(local));
/// # let _ = on_failure;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fallback(pub(crate) Arc<dyn DynTell>);

impl OnFailure {
    /// Answers with 503 and this `Retry-After`.
    pub fn closed(retry_after: Duration) -> Self {
        Self::Closed { retry_after }
    }

    /// What `Retry-After` says on a 503.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::Closed { retry_after } => *retry_after,
            Self::Open | Self::Fallback(_) => Duration::from_secs(1),
        }
    }
}

impl Default for OnFailure {
    /// 503, to come again after a second.
    fn default() -> Self {
        Self::closed(Duration::from_secs(1))
    }
}

impl Fallback {
    /// This limiter; its store, clock and name space are used, its own limits are not.
    pub fn new<S: CounterStore + 'static, C: Clock + 'static>(limiter: RateLimiter<S, C>) -> Self {
        Self(Arc::new(limiter))
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fallback")
    }
}
