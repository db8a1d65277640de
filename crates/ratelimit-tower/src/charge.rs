//! When a request is charged: before it is served, or by how it ended.

use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, StatusCode};

/// How the service behind the layer ended with a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It answered. Its body has not been sent yet; where a gRPC status comes in trailers it is not known here.
    #[non_exhaustive]
    Answered {
        /// The status.
        status: StatusCode,
        /// The head's fields.
        headers: &'a HeaderMap,
        /// What the service has put there for those around it.
        extensions: &'a Extensions,
    },
    /// It failed with an error instead of an answer.
    Failed,
    /// The future was dropped before there was an answer: usually the client has gone.
    Dropped,
}

impl Outcome<'_> {
    /// The answer's status, if there was one.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Failed | Self::Dropped => None,
        }
    }

    /// Whether nothing useful came of it by the server's fault: a status of 500 or more, or an error.
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
/// Whatever depends on the answer meets a race, for many requests may be under way at once; choose the one that does no
/// harm:
///
/// | | a request under way | so it may happen that |
/// |---|---|---|
/// | [`before`](Self::before) | has been charged | nothing: the limit is exact |
/// | [`only_if`](Self::only_if) | has not been charged | more than the limit are let through: as many more as were under way at once. What they turn out to cost is charged in full, also beyond the limit, so that the next ones wait longer |
/// | [`refund_if`](Self::refund_if) | has been charged | some are refused that would have fitted had it been known that others will be refunded. Never more than the limit end without a refund |
///
/// The closure is asked about every end, also about errors and dropped futures ([`Outcome`]). After an answer the charge or
/// refund is done before the answer goes on; after a drop, on a task of its own (at once on a store in process). Where
/// there is no tokio runtime for such a task, or where the store does not answer, it is logged and counted as a failure.
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
    /// Before it is served, whatever comes of it. The default.
    pub fn before() -> Self {
        Self(When::Before)
    }

    /// Only if it ended so; failed log-ins, for example. Before, it is only asked whether the request would still fit,
    /// which is a trip of its own.
    pub fn only_if(outcome: impl Fn(Outcome<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(When::OnlyIf(Arc::new(outcome)))
    }

    /// Before it is served, and given back if it ended so; a server's failure, for example.
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
