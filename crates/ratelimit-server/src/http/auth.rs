//! `/v1/auth`: the subrequest of a gateway, which asks whether the request that it has received may pass.

use std::net::IpAddr;

use axum::extract::Query;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use ratelimit_tower::{Head, PeerAddress};
use serde::Deserialize;

use super::body::{Response, status};
use crate::checks::Checks;
use crate::refusal::Refusal;

/// What nginx, Traefik and Caddy say about the original request, in the order in which they are believed.
const METHODS: [&str; 2] = ["x-original-method", "x-forwarded-method"];
const TARGETS: [&str; 3] = ["x-original-uri", "x-forwarded-uri", "x-original-url"];

/// The options of the subrequest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The status of a refusal by a limit, for nginx, which knows only 401 and 403.
    status: Option<u16>,
    plan: Option<String>,
    domain: Option<String>,
}

/// Decides about the request that a subrequest of this peer asks about.
pub(crate) async fn auth(
    checks: &Checks,
    request: Request<Incoming>,
    peer: IpAddr,
) -> Result<Response, Refusal> {
    let options = Query::<Options>::try_from_uri(request.uri());
    let Query(options) = options.map_err(|error| Refusal::bad(format!("the query: {error}")))?;
    let refused = match options.status {
        None | Some(429) => StatusCode::TOO_MANY_REQUESTS,
        Some(401) => StatusCode::UNAUTHORIZED,
        Some(403) => StatusCode::FORBIDDEN,
        Some(_) => return Err(Refusal::bad("status: it is 401, 403 or 429")),
    };
    let domain = checks.known_domain(options.domain.as_deref())?;
    let (mut parts, _) = request.into_parts();
    parts.extensions.insert(PeerAddress(peer));
    parts.method = original(&parts.headers, &METHODS, Method::from_bytes)?.unwrap_or(Method::GET);
    parts.uri = original(&parts.headers, &TARGETS, |target| Uri::try_from(target))?
        .unwrap_or_else(|| Uri::from_static("/"));
    if let Some(plan) = &options.plan {
        let plan = domain.known_rules()?.config.plan(plan);
        parts.extensions.insert(plan.ok_or_else(|| Refusal::unknown("the file has no such plan"))?);
    }
    let original = Request::from_parts(parts, ());
    let question = domain.by_head(&Head::of(&original))?;
    let mut answered = domain.check(&question).await;
    // Its turn in a queue: the gateway waits for the answer.
    tokio::time::sleep(answered.delay()).await;
    let mut response = Response::default();
    *response.status_mut() = match status(&answered) {
        StatusCode::TOO_MANY_REQUESTS => refused,
        status => status,
    };
    answered.write_fields(response.headers_mut());
    Ok(response)
}

/// The first of these headers that the subrequest has, once.
fn original<T, E>(
    headers: &HeaderMap,
    names: &[&str],
    read: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<Option<T>, Refusal> {
    let Some(name) = names.iter().find(|name| headers.contains_key(**name)) else { return Ok(None) };
    let mut values = headers.get_all(*name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => {
            read(value.as_bytes()).map(Some).map_err(|_| Refusal::bad(format!("{name}: it is not valid")))
        }
        _ => Err(Refusal::bad(format!("{name}: the subrequest has it more than once"))),
    }
}
