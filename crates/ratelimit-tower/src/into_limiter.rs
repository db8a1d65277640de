//! What a layer can be built from: a store, a limiter, or a limiter that the program uses elsewhere, too.

use std::sync::Arc;

use ratelimit_core::{CounterStore, RateLimiter, SystemClock};

/// A store or a limiter: what [`RateLimitLayer::new`](crate::RateLimitLayer::new) counts with.
///
/// Pass an `Arc<RateLimiter<_>>` to use the same limiter elsewhere, for example to look clients up in a handler.
pub trait IntoLimiter<S, C> {
    /// Converts into a limiter, which may be shared.
    fn into_limiter(self) -> Arc<RateLimiter<S, C>>;
}

impl<S: CounterStore> IntoLimiter<S, SystemClock> for S {
    fn into_limiter(self) -> Arc<RateLimiter<S>> {
        Arc::new(RateLimiter::without_limits(self))
    }
}

impl<S, C> IntoLimiter<S, C> for RateLimiter<S, C> {
    fn into_limiter(self) -> Arc<Self> {
        Arc::new(self)
    }
}

impl<S, C> IntoLimiter<S, C> for Arc<RateLimiter<S, C>> {
    fn into_limiter(self) -> Self {
        self
    }
}
