//! When a request is charged: before it is served, or depending on its outcome.

use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, StatusCode};

/// The outcome of a request in the service behind the layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The service returned a response. Its body has not been sent yet; a gRPC status in trailers is not known yet.
    #[non_exhaustive]
    Answered {
        /// The status.
        status: StatusCode,
        /// The response's headers.
        headers: &'a HeaderMap,
        /// The response's extensions, as set by the service.
        extensions: &'a Extensions,
    },
    /// The service returned an error instead of a response.
    Failed,
    /// The future was dropped before there was a response: usually because the client disconnected.
    Dropped,
}

impl Outcome<'_> {
    /// The status of the response, if there is one.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Failed | Self::Dropped => None,
        }
    }

    /// Whether the request failed because of the server: a status from 500 to 599, or an error.
    pub fn is_server_failure(&self) -> bool {
        match self {
            Self::Answered { status, .. } => status.is_server_error(),
            Self::Failed => true,
            Self::Dropped => false,
        }
    }
}

pub(crate) type Predicate = Arc<dyn Fn(Outcome<'_>) -> bool + Send + Sync>;

/// When a policy charges a request.
///
/// A charge that depends on the response is subject to a race, because many requests may be in progress at the same
/// time. Choose the variant whose effect does no harm:
///
/// | | a request in progress | possible effect |
/// |---|---|---|
/// | [`before`](Self::before) | has been charged | none: the limit is exact |
/// | [`only_if`](Self::only_if) | has not been charged | more than the limit are admitted: as many more as were in progress at the same time. Their cost is charged in full, even beyond the limit, so that later requests wait longer |
/// | [`refund_if`](Self::refund_if) | has been charged | some are refused that would have fitted if later refunds had been known. Never more than the limit end without a refund |
///
/// The closure is called for every outcome, including errors and dropped futures ([`Outcome`]). After a response, the
/// charge or refund completes before the response is returned; dropping the future meanwhile does not stop it. If the
/// future is dropped before there is a response, the charge or refund runs on its own task (immediately on a store in
/// process). If there is no tokio runtime for the task, or the store does not answer, this is logged and counted as a
/// failure.
#[derive(Clone, Default)]
pub struct Charge(pub(crate) When);

#[derive(Clone, Default)]
pub(crate) enum When {
    #[default]
    Before,
    OnlyIf(Predicate),
    RefundIf(Predicate),
}

impl Charge {
    /// Charges before the request is served, whatever its outcome. The default.
    pub fn before() -> Self {
        Self(When::Before)
    }

    /// Charges only for these outcomes; for example, failed log-ins. Before the request is served, this only checks
    /// whether it would still fit, which takes a round trip of its own.
    ///
    /// Nothing is held meanwhile, so a [concurrency limit](ratelimit_core::Algorithm::Concurrency) of such a policy refuses
    /// nothing: give it a policy of its own.
    pub fn only_if(outcome: impl Fn(Outcome<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(When::OnlyIf(Arc::new(outcome)))
    }

    /// Charges before the request is served, and refunds it for these outcomes; for example, a server's failure.
    pub fn refund_if(outcome: impl Fn(Outcome<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(When::RefundIf(Arc::new(outcome)))
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            When::Before => "before",
            When::OnlyIf(_) => "only if",
            When::RefundIf(_) => "refund if",
        })
    }
}
