//! Responses to refused requests.

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

/// Builds the response to a refused request. [`Problem`] is the default. For an answer of your own, pass a closure to
/// [`RateLimitLayer::answer_with`](crate::RateLimitLayer::answer_with). You need not implement this trait: use it for
/// bounds, and to call the answers of this crate.
///
/// ```
/// use axum::body::Body;
/// use http::Response;
/// use ratelimit_memory::{Limit, MemoryStore};
/// use ratelimit_tower::{Answer, Problem, RateLimitLayer};
///
/// let limit: Limit = "100/min".parse()?;
/// let layer = RateLimitLayer::in_process(MemoryStore::new(), limit).answer_with(|refusal| {
///     let mut response: Response<Body> = Problem.answer(refusal);
///     response.headers_mut().insert("x-limited-by", "the front door".parse().expect("it is ASCII"));
///     response
/// });
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
