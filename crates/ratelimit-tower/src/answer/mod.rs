//! Responses to refused requests.

mod detail;
mod grpc;
mod problem;
mod refusal;
mod respond;

use http::Response;

pub use grpc::Grpc;
pub use problem::Problem;
pub use refusal::{Reason, Refusal};

pub(crate) use refusal::Refused;
pub(crate) use respond::refuse;

/// Builds the response to a refused request. [`Problem`] is the default. Closures implement it as well; see
/// [`RateLimitLayer::answer_with`](crate::RateLimitLayer::answer_with).
///
/// The layer adds `Retry-After`, `Cache-Control` and the fields of [`Headers`](crate::Headers), unless the response has
/// them already. `RateLimit` and `RateLimit-Policy` are lists, to which it appends. It adds nothing to a gRPC response
/// (`content-type: application/grpc…`).
pub trait Answer<B>: Send + Sync {
    /// Builds the response.
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
