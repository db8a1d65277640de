//! An API that streams tokens, as language models do. A request reserves the tokens that it may use, and pays for those
//! that were sent.

mod model;

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderName, Method};
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use futures::{Stream, StreamExt as _};
use ratelimit_memory::core::clock::Timer;
use ratelimit_memory::{Limit, MemoryStore};
use ratelimit_tower::{
    Charge, Charged, Cost, Head, IntoLimiter, KeySource, Missing, Policies, Policy, PolicyError,
    RateLimitLayer, Settle, Unsettled,
};
use serde::Deserialize;

pub use model::length;

/// Tokens of a request that does not say how many it wants at most.
const DEFAULT_MAX_TOKENS: u64 = 200;

#[derive(Deserialize)]
struct Options {
    max_tokens: Option<u64>,
}

/// Limits the tokens of each API key. What is not settled within this time is settled then.
///
/// # Errors
/// None: the policy is valid.
pub fn limits<C: Timer>(
    limiter: impl IntoLimiter<MemoryStore, C>,
    limit: Limit,
    within: Duration,
) -> Result<RateLimitLayer<MemoryStore, C>, PolicyError> {
    let key = KeySource::api_key(HeaderName::from_static("x-api-key"));
    let tokens = Policy::new("tokens", key, limit)?
        .when_missing(Missing::Refuse)
        .cost(Cost::function(reserved))
        // A request that fails costs nothing.
        .charge(Charge::refund_if(|outcome| !outcome.status().is_some_and(|status| status.is_success())))
        // After that time it costs the estimate, or a client could pay for a few tokens, wait, and read the rest for nothing.
        .settle(Settle::by_handler().within(within).otherwise(Unsettled::Keep));
    Ok(RateLimitLayer::in_process(limiter, Policies::new([tokens])?))
}

/// What a request reserves. The layer sees only the head, so `max_tokens` is in the query and not in the body.
fn reserved(request: &Head<'_>) -> u64 {
    if request.method != Method::POST {
        return 0;
    }
    let options = Query::<Options>::try_from_uri(request.uri);
    options.ok().and_then(|options| options.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS)
}

/// The service, whose model needs `time` for each token.
pub fn routes(time: Duration) -> Router {
    Router::new()
        .route("/complete", post(complete))
        .route("/", get(|| async { "POST a prompt to /complete?max_tokens=50\n" }))
        .with_state(time)
}

async fn complete(
    State(time): State<Duration>,
    Query(options): Query<Options>,
    charged: Charged,
    _prompt: String,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    charged.add(0); // If the client disconnects before the first token, the request costs nothing.
    let most = options.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let tokens = model::answer(usize::try_from(most).unwrap_or(usize::MAX), time);
    Sse::new(tokens.map(move |token| {
        charged.add(1); // If the client disconnects, no further token is asked for.
        Ok(Event::default().data(token))
    }))
}
