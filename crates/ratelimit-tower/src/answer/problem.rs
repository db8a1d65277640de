//! Refusals as problem details (RFC 9457).

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response};
use serde_json::json;

use super::refusal::{Reason, Refusal};
use super::{Answer, Grpc, grpc};

/// Answers with `application/problem+json`, and gRPC requests like [`Grpc`]. The default.
///
/// A gRPC request is a POST whose `Content-Type` begins with `application/grpc`. The method counts because a refusal in gRPC's
/// form has the status 200: a client could otherwise get a refusal of a GET into a shared cache.
///
/// ```json
/// {
///   "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
///   "title": "Request cannot be satisfied as assigned quota has been exceeded",
///   "status": 429,
///   "detail": "try again in 12 seconds",
///   "violated-policies": ["free"]
/// }
/// ```
///
/// The types are those that the draft of the `RateLimit` fields registers: `quota-exceeded` (429), `abnormal-usage-detected`
/// (429, if the client is banned) and `temporary-reduced-capacity` (503, if the store does not answer). 400, 403 and 500 have no type of their own and
/// reveal no internals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Problem;

impl<B: From<Bytes>> Answer<B> for Problem {
    fn answer(&self, refusal: &Refusal<'_>) -> Response<B> {
        let request = refusal.request();
        if request.method == Method::POST && grpc::is_grpc(request.headers) {
            return Grpc::respond(refusal, B::from(Bytes::new()));
        }
        let mut response = Response::new(B::from(Bytes::from(body(refusal))));
        *response.status_mut() = refusal.reason().status();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

fn body(refusal: &Refusal<'_>) -> String {
    let reason = refusal.reason();
    let (kind, title) = match reason {
        Reason::QuotaExceeded => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
        Reason::Banned => (
            "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
            "Request not satisfied due to detection of abnormal request pattern",
        ),
        Reason::StoreUnavailable => (
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "Request cannot be satisfied due to temporary server capacity constraints",
        ),
        Reason::Denied => ("about:blank", "Forbidden"),
        Reason::Unidentified => ("about:blank", "Bad Request"),
        Reason::Misconfigured => ("about:blank", "Internal Server Error"),
    };
    let mut body = json!({
        "type": kind,
        "title": title,
        "status": reason.status().as_u16(),
        "detail": refusal.in_words(),
    });
    if matches!(reason, Reason::QuotaExceeded | Reason::Banned | Reason::StoreUnavailable) {
        body["violated-policies"] = refusal.violated_policies().collect();
    }
    body.to_string()
}
