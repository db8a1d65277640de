//! The routes of the HTTP door.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRef, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::auth;
use super::body::{Answer, Batch, Check, Receipt, error, json_response, respond, status, status_of};
use crate::checks::{Checks, Refusal, Settlement};
use crate::listen::Ending;
use crate::metrics;

/// The maximum length of a body.
const LARGEST: usize = 256 * 1_024;

/// The maximum number of checks in a batch.
const MOST: usize = 100;

/// The OpenAPI document.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// What the routes need.
#[derive(Clone)]
struct Door {
    checks: Arc<Checks>,
    ending: Ending,
}

impl FromRef<Door> for Arc<Checks> {
    fn from_ref(door: &Door) -> Self {
        door.checks.clone()
    }
}

/// All routes but those that change counts. A request may take this long.
pub(crate) fn router(checks: Arc<Checks>, ending: Ending, longest: Duration) -> Router {
    let door = Door { checks, ending };
    let routes = Router::new()
        .route("/v1/check", post(check))
        .route("/v1/peek", post(peek))
        .route("/v1/batch", post(batch))
        .route("/v1/refund", post(refund))
        .route("/v1/settle", post(settle))
        .route("/v1/release", post(release))
        .route("/v1/auth", any(auth::auth))
        .route("/metrics", get(scrape))
        .route("/live", get(|| async { "alive\n" }))
        .route("/ready", get(ready))
        .route("/openapi.json", get(openapi));
    finish(routes, door, longest)
}

/// The routes of the administrative address.
pub(crate) fn admin(checks: Arc<Checks>, ending: Ending, longest: Duration) -> Router {
    finish(Router::new().route("/v1/reset", post(reset)), Door { checks, ending }, longest)
}

fn finish(routes: Router<Door>, door: Door, longest: Duration) -> Router {
    routes
        .fallback(|| async { error(StatusCode::NOT_FOUND, "there is no such path; see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            error(StatusCode::METHOD_NOT_ALLOWED, "use another method; see /openapi.json")
        })
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(middleware::from_fn(move |request, next| in_time(request, next, longest)))
        .with_state(door)
}

/// Ends a request whose body does not arrive.
async fn in_time(request: Request, next: Next, longest: Duration) -> Response {
    let answered = tokio::time::timeout(longest, next.run(request)).await;
    answered.unwrap_or_else(|_| error(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"))
}

async fn check(State(door): State<Door>, body: Bytes) -> Response {
    respond(check_one(&door, &body).await)
}

async fn check_one(door: &Door, body: &[u8]) -> Result<Response, Refusal> {
    let check: Check = read(body)?;
    let domain = door.checks.known_domain(check.domain.as_deref())?;
    let question = check.question(&door.checks, &domain)?;
    let mut answered = domain.check(&question).await;
    let answer = Answer::with_receipt(&door.checks, &domain, &question, &answered);
    let mut response = json_response(status(&answered), &answer);
    answered.write_fields(response.headers_mut());
    Ok(response)
}

async fn peek(State(door): State<Door>, body: Bytes) -> Response {
    let peeked = async {
        let check: Check = read(&body)?;
        let domain = door.checks.known_domain(check.domain.as_deref())?;
        let question = check.question(&door.checks, &domain)?;
        let answered = domain.peek(&question).await?;
        Ok(json_response(StatusCode::OK, &Answer::of(&answered)))
    };
    respond(peeked.await)
}

async fn batch(State(door): State<Door>, body: Bytes) -> Response {
    let decided = async {
        let Batch { checks } = read(&body)?;
        if checks.len() > MOST {
            return Err(Refusal::Bad(format!(
                "checks: there are {}, at most {MOST} in one batch",
                checks.len()
            )));
        }
        let results = join_all(checks.iter().map(|check| in_batch(&door, check))).await;
        Ok(json_response(StatusCode::OK, &json!({ "results": results })))
    };
    respond(decided.await)
}

async fn in_batch(door: &Door, check: &Check) -> Value {
    let decided = async {
        let domain = door.checks.known_domain(check.domain.as_deref())?;
        let question = check.question(&door.checks, &domain)?;
        let answered = domain.check(&question).await;
        let answer = Answer::with_receipt(&door.checks, &domain, &question, &answered);
        Ok((status(&answered), serde_json::to_value(answer).unwrap_or_default()))
    };
    let (status, mut value) = decided
        .await
        .unwrap_or_else(|refusal: Refusal| (status_of(&refusal), json!({ "error": refusal.to_string() })));
    value["status"] = status.as_u16().into();
    value
}

async fn refund(State(door): State<Door>, body: Bytes) -> Response {
    respond(
        by_receipt(&door, &body, |receipt| match receipt.cost {
            None => Ok(Settlement::Refund),
            Some(_) => Err("cost: a refund returns everything; to correct the cost, use /v1/settle"),
        })
        .await,
    )
}

async fn settle(State(door): State<Door>, body: Bytes) -> Response {
    respond(
        by_receipt(&door, &body, |receipt| receipt.cost.map(Settlement::Settle).ok_or("cost: it is missing"))
            .await,
    )
}

async fn release(State(door): State<Door>, body: Bytes) -> Response {
    respond(
        by_receipt(&door, &body, |receipt| match receipt.cost {
            None => Ok(Settlement::Release),
            Some(_) => Err("cost: a release has none"),
        })
        .await,
    )
}

async fn by_receipt(
    door: &Door,
    body: &[u8],
    what: impl Fn(&Receipt) -> Result<Settlement, &'static str>,
) -> Result<Response, Refusal> {
    let receipt: Receipt = read(body)?;
    let settlement = what(&receipt).map_err(|error| Refusal::Bad(error.to_owned()))?;
    door.checks.settle(&receipt.receipt, settlement).await?;
    Ok(json_response(StatusCode::OK, &json!({ "done": true })))
}

async fn reset(State(door): State<Door>, body: Bytes) -> Response {
    let done = async {
        let check: Check = read(&body)?;
        let domain = door.checks.known_domain(check.domain.as_deref())?;
        domain.reset(&check.question(&door.checks, &domain)?).await?;
        Ok(json_response(StatusCode::OK, &json!({ "done": true })))
    };
    respond(done.await)
}

async fn ready(State(door): State<Door>) -> Response {
    if !door.ending.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, "ending\n").into_response();
    }
    "ready\n".into_response()
}

async fn scrape() -> Response {
    let Some(handle) = metrics::handle() else {
        return error(StatusCode::NOT_FOUND, "another part of this process has the metrics");
    };
    let mut response = handle.render().into_response();
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// Reads a body, which is JSON whatever its type says.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // serde_json's errors name fields and types; those of strings do not quote their values.
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Bad(format!("the body is not as in /openapi.json: {error}")))
}
