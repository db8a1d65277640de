//! The routes of the HTTP door.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::auth::auth;
use super::body::{Answer, Batch, Check, Receipt, Response, json_response, refuse, response, status};
use crate::checks::{Checks, Settlement};
use crate::listen::{Bounds, Ending, serve_http};
use crate::metrics;
use crate::refusal::Refusal;

/// The maximum length of a body.
const LARGEST: usize = 256 * 1_024;

/// The maximum number of checks in a batch.
const MOST: usize = 100;

const TEXT: &str = "text/plain; charset=utf-8";

/// The OpenAPI document.
const OPENAPI: &str = include_str!("openapi.json");

/// The paths and their methods; any method if there is none.
const ROUTES: [(&str, &str); 11] = [
    ("/v1/check", "POST"),
    ("/v1/peek", "POST"),
    ("/v1/batch", "POST"),
    ("/v1/refund", "POST"),
    ("/v1/settle", "POST"),
    ("/v1/release", "POST"),
    ("/v1/auth", ""),
    ("/metrics", "GET"),
    ("/live", "GET"),
    ("/ready", "GET"),
    ("/openapi.json", "GET"),
];

/// Those of the administrative address: they change counts.
const ADMIN: [(&str, &str); 1] = [("/v1/reset", "POST")];

/// One address, and what its routes need.
pub(crate) struct Door {
    pub(crate) checks: Arc<Checks>,
    pub(crate) ending: Ending,
    /// How long a body may take to arrive.
    pub(crate) longest: Duration,
    pub(crate) is_admin: bool,
}

impl Door {
    /// Answers until the server ends.
    pub(crate) async fn serve(self, listener: TcpListener, bounds: Bounds) {
        let (ending, door) = (self.ending.clone(), Arc::new(self));
        serve_http(listener, bounds, ending, move |request, peer| {
            let door = door.clone();
            async move { door.answer(request, peer).await }
        })
        .await;
    }

    async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Response {
        self.route(request, peer).await.unwrap_or_else(|refusal| refuse(&refusal))
    }

    async fn route(&self, request: Request<Incoming>, peer: IpAddr) -> Result<Response, Refusal> {
        let routes = if self.is_admin { &ADMIN[..] } else { &ROUTES };
        let found = routes.iter().find(|(path, _)| *path == request.uri().path());
        let Some(&(path, method)) = found else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such path; see /openapi.json"));
        };
        let is_right =
            method == request.method().as_str() || method == "GET" && request.method() == Method::HEAD;
        match path {
            "/v1/auth" => auth(&self.checks, request, peer).await,
            _ if !is_right => {
                let mut response =
                    refuse(&Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("use {method}")));
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
                Ok(response)
            }
            "/live" => Ok(response(StatusCode::OK, TEXT, "alive\n")),
            "/ready" if self.ending.is_ready() => Ok(response(StatusCode::OK, TEXT, "ready\n")),
            "/ready" => Ok(response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "ending\n")),
            "/metrics" => {
                let none =
                    || Refusal::new(StatusCode::NOT_FOUND, "another part of this process has the metrics");
                let handle = metrics::handle().ok_or_else(none)?;
                Ok(response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", handle.render()))
            }
            "/openapi.json" => Ok(response(StatusCode::OK, "application/json", OPENAPI)),
            _ => {
                let body = self.body(request.into_body()).await?;
                self.post(path, &body).await
            }
        }
    }

    /// The whole body, if it is not too long and arrives in time.
    async fn body(&self, body: Incoming) -> Result<Bytes, Refusal> {
        let collected = timeout(self.longest, Limited::new(body, LARGEST).collect()).await;
        let collected = collected
            .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"))?;
        collected.map(|body| body.to_bytes()).map_err(|error| {
            let is_long = error.is::<LengthLimitError>();
            let status = if is_long { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
            Refusal::new(status, format!("the body: {error}"))
        })
    }

    async fn post(&self, path: &str, body: &[u8]) -> Result<Response, Refusal> {
        let checks = &self.checks;
        match path {
            "/v1/check" => return self.check(&read(body)?).await,
            "/v1/batch" => return self.batch(&read(body)?).await,
            "/v1/peek" | "/v1/reset" => {
                let check: Check = read(body)?;
                let domain = checks.known_domain(check.domain.as_deref())?;
                let question = check.question(checks, &domain)?;
                if path == "/v1/peek" {
                    let answered = domain.peek(&question).await?;
                    return Ok(json_response(StatusCode::OK, &Answer::of(&answered, None)));
                }
                domain.reset(&question).await?;
                return Ok(done());
            }
            _ => {}
        }
        let Receipt { receipt, cost } = read(body)?;
        let settlement = match (path, cost) {
            ("/v1/settle", Some(cost)) => Settlement::Settle(cost),
            ("/v1/settle", None) => return Err(Refusal::bad("cost: it is missing")),
            (_, Some(_)) => return Err(Refusal::bad("cost: only /v1/settle takes one")),
            ("/v1/refund", None) => Settlement::Refund,
            _ => Settlement::Release,
        };
        checks.settle(&receipt, settlement).await?;
        Ok(done())
    }

    async fn check(&self, check: &Check) -> Result<Response, Refusal> {
        let mut fields = HeaderMap::new();
        let (status, answer) = self.decide(check, &mut fields).await?;
        let mut response = json_response(status, &answer);
        response.headers_mut().extend(fields);
        Ok(response)
    }

    async fn decide(&self, check: &Check, fields: &mut HeaderMap) -> Result<(StatusCode, Answer), Refusal> {
        let domain = self.checks.known_domain(check.domain.as_deref())?;
        let question = check.question(&self.checks, &domain)?;
        let mut answered = domain.check(&question).await;
        answered.write_fields(fields);
        let receipt = self.checks.receipt(&domain, &question, &answered);
        Ok((status(&answered), Answer::of(&answered, receipt)))
    }

    async fn batch(&self, Batch { checks }: &Batch) -> Result<Response, Refusal> {
        if checks.len() > MOST {
            return Err(Refusal::bad(format!(
                "checks: there are {}, at most {MOST} in one batch",
                checks.len()
            )));
        }
        let each = async |check| {
            let (status, mut value) = match self.decide(check, &mut HeaderMap::new()).await {
                Ok((status, answer)) => (status, serde_json::to_value(answer).unwrap_or_default()),
                Err(refusal) => (refusal.status, json!({ "error": refusal.to_string() })),
            };
            value["status"] = status.as_u16().into();
            value
        };
        let results = join_all(checks.iter().map(each)).await;
        Ok(json_response(StatusCode::OK, &json!({ "results": results })))
    }
}

fn done() -> Response {
    json_response(StatusCode::OK, &json!({ "done": true }))
}

/// Reads a body, which is JSON whatever its type says.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // serde_json's errors name fields and types; those of strings do not quote their values.
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad(format!("the body is not as in /openapi.json: {error}")))
}
