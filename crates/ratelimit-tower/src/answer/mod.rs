//! Answers to requests that are refused.

mod grpc;
mod problem;

use std::time::Duration;

use crate::Head;
use http::{Response, StatusCode};

pub use grpc::Grpc;
pub use problem::Problem;

use crate::headers;
use crate::verdict::Refused;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A limit is used up: 429.
    QuotaExceeded,
    /// The store did not answer, and [`OnFailure`](crate::OnFailure) says so: 503.
    StoreUnavailable,
    /// The client did not send what is counted by, and [`Missing`](crate::Missing) says so: 400.
    Unidentified,
    /// The program did not provide what is counted by, or its policies cannot be checked: 500. The log says more.
    Misconfigured,
}

impl Reason {
    /// The status that goes with it.
    pub fn status(self) -> StatusCode {
        match self {
            Self::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            Self::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unidentified => StatusCode::BAD_REQUEST,
            Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A refusal: what there is to make an answer of.
pub struct Refusal<'a> {
    refused: &'a Refused,
    request: Head<'a>,
}

impl Refusal<'_> {
    /// Why it is refused.
    pub fn reason(&self) -> Reason {
        self.refused.reason
    }

    /// The head of the request.
    pub fn request(&self) -> Head<'_> {
        self.request
    }

    /// How long to wait until the same request would be admitted if nobody else came. `None` if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refused.retry_after
    }

    /// The same as `Retry-After` says it: whole seconds, rounded up, at least one.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.refused.retry_after.map(|wait| headers::whole_seconds(wait).max(1))
    }

    /// The limits that refused, as [`Plan`](crate::Plan) calls them; those that could not be checked if the store did not
    /// answer.
    pub fn violated_policies(&self) -> impl ExactSizeIterator<Item = &str> {
        self.refused.violated.iter().map(|name| &**name)
    }
}

impl std::fmt::Debug for Refusal<'_> {
    /// Without the request, which has secrets in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refusal")
            .field("reason", &self.reason())
            .field("retry_after", &self.retry_after())
            .field("violated_policies", &self.refused.violated)
            .finish()
    }
}

/// Makes the answer to a request that is refused. [`Problem`] is the default; closures are answers as well, see
/// [`RateLimitLayer::answer_with`](crate::RateLimitLayer::answer_with).
///
/// The layer adds `Retry-After`, `Cache-Control` and the fields that [`Headers`](crate::Headers) names, unless the answer
/// has them, or is one of gRPC (`content-type: application/grpc…`).
pub trait Answer<B>: Send + Sync {
    /// The answer.
    fn answer(&self, refusal: &Refusal<'_>) -> Response<B>;
}

impl<B, F> Answer<B> for F
where
    F: Fn(&Refusal<'_>) -> Response<B> + Send + Sync,
{
    fn answer(&self, refusal: &Refusal<'_>) -> Response<B> {
        self(refusal)
    }
}

/// The whole answer, with its fields.
pub(crate) fn refuse<B>(answers: &impl Answer<B>, mut refused: Refused, request: Head<'_>) -> Response<B> {
    let mut response = answers.answer(&Refusal { refused: &refused, request });
    if !grpc::is_grpc(response.headers()) {
        headers::refusal(response.headers_mut(), refused.retry_after);
        refused.lines.write(response.headers_mut());
    }
    response
}
