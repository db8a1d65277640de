//! The API: one route, and the layers in front of it.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ratelimit_core::RateLimiter;
use ratelimit_tower::config::{ConfigFile, PlanName};
use ratelimit_tower::{RateLimitLayer, Reason, Refusal};
use serde_json::json;

use crate::customers;
use ratelimit_stores::Store;

/// The whole service. A request passes the layers from the last to the first: they find its plan, check its limits, and
/// check whether it may be served.
pub(crate) fn router(limiter: RateLimiter<Store>, policies: &ConfigFile) -> Router {
    let limits = RateLimitLayer::new(limiter, policies.policies()).answer_with(refuse);
    Router::new()
        .route("/", get(|| async { Json(json!({ "message": "hello" })) }))
        .layer(middleware::from_fn(serve_customers))
        .layer(limits)
        .layer(middleware::from_fn_with_state(policies.clone(), find_plan))
}

/// Looks up the plan of the API key, for the inner layers.
async fn find_plan(State(policies): State<ConfigFile>, mut request: Request, next: Next) -> Response {
    let mut api_keys = request.headers().get_all("x-api-key").iter();
    // Of two keys, it is not known which one the limits would count.
    let api_key = api_keys.next().filter(|_| api_keys.next().is_none());
    let plan = api_key.and_then(|api_key| customers::plan_of(api_key.as_bytes()));
    if let Some(plan) = plan.and_then(|plan| policies.plan(plan)) {
        request.extensions_mut().insert(plan);
    }
    next.run(request).await
}

/// Passes on requests that have a plan. Requests without one have been counted by address all the same.
async fn serve_customers(request: Request, next: Next) -> Response {
    if request.extensions().get::<PlanName>().is_some() {
        return next.run(request).await;
    }
    let body = json!({ "error": "send a known API key in the header x-api-key" });
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
}

/// The response to a refused request; the layer adds `Retry-After` and the other fields.
fn refuse(refusal: &Refusal<'_>) -> Response {
    let plan = refusal.request().extensions.get::<PlanName>();
    let body = match refusal.reason() {
        Reason::QuotaExceeded | Reason::Banned => json!({
            "error": "too many requests",
            "plan": plan.map(PlanName::as_str),
            "exceeded": refusal.violated_policies().collect::<Vec<_>>(),
            "retry_after_seconds": refusal.retry_after_seconds(),
        }),
        Reason::Denied => json!({ "error": "requests of this client are not served" }),
        _ => json!({ "error": "the service cannot count requests at the moment" }),
    };
    (refusal.reason().status(), Json(body)).into_response()
}
