//! Events and metrics of the layers, if their features are enabled. Neither ever contains a key.
#![cfg_attr(not(feature = "metrics"), allow(unused_variables))]

use crate::{Clock, StoreError, Timestamp};

/// When a call began, if that is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun(#[cfg_attr(not(feature = "metrics"), allow(dead_code))] Option<Timestamp>);

#[inline]
pub(super) fn begin(clock: &impl Clock) -> Begun {
    Begun(cfg!(feature = "metrics").then(|| clock.now()))
}

/// Records a call that has reached the store.
#[inline]
pub(super) fn called(call: &'static str, begun: Begun, clock: &impl Clock, error: Option<&StoreError>) {
    #[cfg(feature = "metrics")]
    {
        if let Begun(Some(begun)) = begun {
            let seconds = clock.now().since(begun).as_secs_f64();
            metrics::histogram!("ratelimit_store_call_seconds", "call" => call).record(seconds);
        }
        if let Some(error) = error {
            let labels = [("store", error.store()), ("error.type", error.kind().as_str())];
            metrics::counter!("ratelimit_store_call_errors_total", &labels).increment(1);
        }
    }
}

/// Records claims that the fallback has decided, because of this error.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(super) fn fell_back(error: &StoreError) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_fallback_total", "error.type" => error.kind().as_str()).increment(1);
    #[cfg(feature = "tracing")]
    {
        // Without a breaker, or as long as it stays closed, nothing else says why.
        static THROTTLE: crate::kit::Throttle = crate::kit::Throttle::new();
        if let Some(left_out) = THROTTLE.pass() {
            tracing::warn!(left_out, %error, "the store does not decide: the fallback decides");
        }
    }
}

/// Exports a zero for each change of a breaker: from a counter that begins at one, Prometheus does not see an increase.
pub(super) fn no_changes() {
    #[cfg(feature = "metrics")]
    for to in ["open", "open_again", "closed"] {
        metrics::counter!("ratelimit_breaker_changes_total", "to" => to).increment(0);
    }
}

/// Records that a breaker has opened.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(super) fn opened(last: &StoreError) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_breaker_changes_total", "to" => "open").increment(1);
    #[cfg(feature = "tracing")]
    tracing::warn!(error = %last, "calls to the store fail: no more are sent to it for a while");
}

/// Records that the probe of a breaker has failed.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(super) fn still_open(last: &StoreError) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_breaker_changes_total", "to" => "open_again").increment(1);
    #[cfg(feature = "tracing")]
    tracing::debug!(error = %last, "the store still does not answer");
}

/// Records that a breaker has closed.
pub(super) fn closed() {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_breaker_changes_total", "to" => "closed").increment(1);
    #[cfg(feature = "tracing")]
    tracing::info!("the store answers again");
}
