//! What to do if the store does not answer.

use std::time::Duration;

/// What to do with a request if the store does not answer. The failure is counted and logged in any case.
///
/// To let another store decide, wrap the two in a [`Fallback`](ratelimit_core::layers::Fallback), or in a
/// [`Resilience`](ratelimit_core::layers::Resilience), which also stops calling a store that fails. This choice is then for
/// requests that neither of them decides.
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
}

impl OnFailure {
    /// Answers with 503 and this `Retry-After`.
    pub fn closed(retry_after: Duration) -> Self {
        Self::Closed { retry_after }
    }
}

impl Default for OnFailure {
    /// Answers with 503 and a `Retry-After` of one second.
    fn default() -> Self {
        Self::closed(Duration::from_secs(1))
    }
}
