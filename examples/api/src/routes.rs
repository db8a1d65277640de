//! The API: one route, and the limit in front of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ratelimit_core::{CheckError, Decision, RateLimiter, Request as Check};
use serde_json::json;

use crate::plans::{Plan, Plans};
use crate::store::Store;

struct App {
    limiter: RateLimiter<Store>,
    plans: Plans,
}

/// The whole service.
pub(crate) fn router(limiter: RateLimiter<Store>, plans: Plans) -> Router {
    let app = Arc::new(App { limiter, plans });
    Router::new()
        .route("/", get(|| async { Json(json!({ "message": "hello" })) }))
        .layer(middleware::from_fn_with_state(app.clone(), limit))
}

/// Lets a request through if the plan of its API key and its client address allow it: both are charged, or neither.
async fn limit(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let api_key = request.headers().get("x-api-key").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let address = peer.ip().to_canonical().to_string();
    let by_address = Check::new(&address).limits(&app.plans.address);
    let plan = api_key.as_deref().and_then(|api_key| app.plans.of(api_key));
    let check = match (&api_key, plan) {
        (Some(api_key), Some(plan)) => Check::new(api_key).limits(&plan.limits).and(by_address),
        _ => by_address, // who has no key is counted all the same
    };
    match (app.limiter.check(&check).await, plan) {
        (Err(error), _) => unavailable(&error),
        (Ok(decision), _) if !decision.allowed() => refused(&decision, plan),
        (Ok(_), None) => unknown_key(),
        (Ok(decision), Some(_)) => (headers(&decision), next.run(request).await).into_response(),
    }
}

fn refused(decision: &Decision, plan: Option<&Plan>) -> Response {
    let wait = decision.retry_after().map_or(1, whole_seconds);
    let body = json!({
        "error": "too many requests",
        "plan": plan.map(|plan| plan.name),
        "limit": decision.limit(),
        "retry_after_seconds": wait,
    });
    let again = [("retry-after", wait.to_string()), ("cache-control", "no-store".to_owned())];
    (StatusCode::TOO_MANY_REQUESTS, again, headers(decision), Json(body)).into_response()
}

fn unknown_key() -> Response {
    let body = json!({ "error": "send a known API key in the header x-api-key" });
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
}

/// The store did not answer. This service refuses then; one that would rather stay open calls the next layer here.
fn unavailable(error: &CheckError) -> Response {
    eprintln!("{error}");
    let body = json!({ "error": "the service cannot count requests at the moment" });
    (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], Json(body)).into_response()
}

fn headers(decision: &Decision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("ratelimit-limit", decision.limit().into());
    headers.insert("ratelimit-remaining", decision.remaining().into());
    headers.insert("ratelimit-reset", whole_seconds(decision.reset_after()).into());
    headers
}

/// Rounded up, so that who waits so long has waited long enough; at least one.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}
