//! Events and metrics. Neither ever contains a key.

use ratelimit_core::{CheckError, Clock, Timestamp};

use crate::absent::Absent;

/// An event, at most once per second.
#[cfg(feature = "tracing")]
macro_rules! seldom {
    ($level:ident, $($event:tt)*) => {{
        static THROTTLE: ratelimit_core::kit::Throttle = ratelimit_core::kit::Throttle::new();
        if let Some(left_out) = THROTTLE.pass() {
            tracing::$level!(left_out, $($event)*);
        }
    }};
}

/// When a call to the store begins, if that is measured.
pub(crate) fn begin(clock: &impl Clock) -> Option<Timestamp> {
    cfg!(feature = "metrics").then(|| clock.now())
}

/// Records that the store has answered, or failed. Labels and the fields of the span have the names of OpenTelemetry's
/// semantic conventions, where it has names.
#[cfg_attr(not(feature = "metrics"), allow(unused_variables))]
pub(crate) fn answered(begun: Option<Timestamp>, clock: &impl Clock, error: Option<&CheckError>) {
    #[cfg(feature = "metrics")]
    if let Some(begun) = begun {
        metrics::histogram!("ratelimit_store_seconds").record(clock.now().since(begun).as_secs_f64());
    }
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    if let Some(CheckError::Store(error)) = error {
        let kind = error.kind().as_str();
        #[cfg(feature = "tracing")]
        mark_failed(kind);
        #[cfg(feature = "metrics")]
        metrics::counter!("ratelimit_store_errors_total", "store" => error.store(), "error.type" => kind)
            .increment(1);
    }
}

/// Records that some policy applies to a request.
pub(crate) fn checked<'p>(policies: impl Iterator<Item = &'p Checks>) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_checks_total").increment(1);
    policies.for_each(Checks::add);
}

/// The number of checks of one policy. Its name is known before any request, so that counting allocates nothing.
#[derive(Clone)]
pub(crate) struct Checks {
    #[cfg(feature = "metrics")]
    key: metrics::Key,
}

impl Checks {
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables))]
    pub(crate) fn of(policy: &std::sync::Arc<str>) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            key: {
                let label = metrics::Label::new("policy", policy.clone());
                metrics::Key::from_parts("ratelimit_policy_checks_total", vec![label])
            },
        }
    }

    fn add(&self) {
        #[cfg(feature = "metrics")]
        {
            let of = metrics::Metadata::new(module_path!(), metrics::Level::INFO, Some(module_path!()));
            metrics::with_recorder(|recorder| recorder.register_counter(&self.key, &of).increment(1));
        }
    }
}

/// Records that a decision admits a request.
pub(crate) fn admitted() {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_admitted_total").increment(1);
}

/// Records that a limit has refused a request, or would have.
#[cfg_attr(not(any(feature = "metrics", feature = "tracing")), allow(unused_variables))]
pub(crate) fn refused(policy: &std::sync::Arc<str>, shadow: bool) {
    #[cfg(feature = "metrics")]
    {
        let shadow = if shadow { "true" } else { "false" };
        metrics::counter!("ratelimit_refused_total", "policy" => policy.clone(), "shadow" => shadow)
            .increment(1);
    }
    #[cfg(feature = "tracing")]
    if shadow {
        seldom!(info, %policy, "a policy in shadow would have refused a request");
    } else {
        tracing::debug!(%policy, "refused a request");
    }
}

/// Records that a client is denied by a list, or would be.
#[cfg_attr(not(any(feature = "metrics", feature = "tracing")), allow(unused_variables))]
pub(crate) fn denied(shadow: bool) {
    #[cfg(feature = "metrics")]
    {
        let shadow = if shadow { "true" } else { "false" };
        metrics::counter!("ratelimit_denied_total", "shadow" => shadow).increment(1);
    }
    #[cfg(feature = "tracing")]
    if shadow {
        seldom!(info, "a list in shadow would have refused a client");
    } else {
        tracing::debug!("refused a client that is in a list");
    }
}

/// Records that a request does not have what a policy counts by.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn unidentified(policy: &str, absent: &Absent) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_unidentified_total", "policy" => policy.to_owned()).increment(1);
    #[cfg(feature = "tracing")]
    match absent {
        Absent::Program(what) => seldom!(error, policy, "a request cannot be counted: {what}"),
        Absent::Several(header) => {
            seldom!(info, policy, %header, "a request has a header more than once of which a policy needs one");
        }
        Absent::Client(_) => {
            tracing::debug!(policy, "a request does not have the key that it is counted by");
        }
    }
}

/// Records that a request has the header several times by which a list identifies clients. A list of clients to refuse then
/// refuses it, another one does not apply to it.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn listed_by_several(denies: bool, header: &http::HeaderName) {
    #[cfg(feature = "tracing")]
    if denies {
        seldom!(info, %header, "a request has a header more than once by which a list refuses clients");
    } else {
        seldom!(info, %header, "a request has a header more than once by which a list exempts clients");
    }
}

/// Records that a request is counted as that of a trusted proxy: its header has no other address, or is malformed.
#[cfg_attr(not(any(feature = "metrics", feature = "tracing")), allow(unused_variables))]
pub(crate) fn unresolved(reason: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_unresolved_addresses_total", "reason" => reason).increment(1);
    #[cfg(feature = "tracing")]
    tracing::debug!(reason, "a request is counted by the address of a trusted proxy");
}

/// Records that a list of clients does not apply to a request, because the program did not provide what it identifies
/// clients by. The request is handled as that of any other client.
#[cfg_attr(not(all(feature = "metrics", feature = "tracing")), allow(unused_variables))]
pub(crate) fn unlisted(list: &str, what: &str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_unidentified_total", "policy" => list.to_owned()).increment(1);
    #[cfg(feature = "tracing")]
    seldom!(debug, list, "a list of clients does not apply to a request: {what}");
}

/// Records that a policy does not apply to a request, because the program did not provide what it counts by. The program
/// wants that for some requests; if it is so for all of them, the key is probably misnamed.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn exempt(policy: &str, what: &str) {
    #[cfg(feature = "tracing")]
    seldom!(debug, policy, "a policy does not apply to a request: {what}");
}

/// Records that two layers around one request have a policy of this name, with different limits. They share a count.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn twins(policy: &str) {
    #[cfg(feature = "tracing")]
    seldom!(
        warn,
        policy,
        "two layers with one limiter have a policy of this name with different limits, and count together: give them \
         different names"
    );
}

/// Records that a fallback among the layers around the store has decided a request. The fallback has logged why.
pub(crate) fn degraded() {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_degraded_total").increment(1);
}

/// Records that the store did not decide a request; `answer` says what happens instead: `open` or `closed`.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn failed(error: &CheckError, answer: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_failures_total", "answer" => answer).increment(1);
    #[cfg(feature = "tracing")]
    match error {
        CheckError::Store(error) => {
            seldom!(warn, %error, answer, "a request could not be counted");
        }
        error => seldom!(error, %error, answer, "the policies cannot be checked"),
    }
}

/// Records that a charge, a refund or a settlement after the response failed.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn unsettled(why: &dyn std::fmt::Display) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_failures_total", "answer" => "unsettled").increment(1);
    #[cfg(feature = "tracing")]
    seldom!(warn, error = %why, "a charge or refund after the response failed");
}

/// Records that a policy in shadow could not be checked.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn shadow_failed(error: &CheckError) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_failures_total", "answer" => "shadow").increment(1);
    #[cfg(feature = "tracing")]
    seldom!(warn, %error, "policies in shadow could not be checked");
}

/// Marks the current span as failed, if it is one of ours: if ours is disabled, or the store is in this process, it is one
/// of the program's.
#[cfg(feature = "tracing")]
fn mark_failed(kind: &str) {
    let span = tracing::Span::current();
    let is_ours = |of: &tracing::Metadata<'_>| of.name() == SPAN && of.target() == module_path!();
    if span.metadata().is_some_and(is_ours) {
        span.record("error.type", kind).record("otel.status_code", "ERROR");
    }
}

#[cfg(feature = "tracing")]
const SPAN: &str = "rate_limit";

/// A span around waiting for a store.
#[cfg(feature = "tracing")]
pub(crate) fn span<F: Future>(deciding: F) -> impl Future<Output = F::Output> {
    use tracing::Instrument as _;
    use tracing::field::Empty;
    deciding.instrument(tracing::debug_span!(SPAN, error.r#type = Empty, otel.status_code = Empty))
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn span<F: Future>(deciding: F) -> F {
    deciding
}
