//! Refusals for gRPC.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::Answer;
use super::refusal::{Reason, Refusal};

const GRPC: &str = "application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// Milliseconds until a client may retry by its retry policy; negative: never (gRFC A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Answers every refused request in gRPC's form: for services whose bodies are always gRPC, such as tonic's.
///
/// The response has only trailers: 200 with `grpc-status`
/// - `RESOURCE_EXHAUSTED` (8) if a limit refuses,
/// - `UNAVAILABLE` (14) if the store does not answer,
/// - `PERMISSION_DENIED` (7) if the client is in a list of those to refuse,
/// - `UNAUTHENTICATED` (16) if the client did not send what the policy counts by,
/// - `INTERNAL` (13) for mistakes in the program.
///
/// `grpc-status-details-bin` contains a `google.rpc.Status` with a `RetryInfo` (to the nanosecond; omitted if waiting does
/// not help) and, if a limit refuses, a `QuotaFailure` that names the limits. `grpc-retry-pushback-ms` makes a client with a
/// retry policy wait as long; -1, with which it does not retry, if waiting does not help or takes more than 24 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grpc;

impl<B: Default> Answer<B> for Grpc {
    fn answer(&self, refusal: &Refusal<'_>) -> Response<B> {
        Self::respond(refusal, B::default())
    }
}

impl Grpc {
    pub(super) fn respond<B>(refusal: &Refusal<'_>, body: B) -> Response<B> {
        let code: u8 = match refusal.reason() {
            Reason::QuotaExceeded | Reason::Banned => 8,
            Reason::Denied => 7,
            Reason::StoreUnavailable => 14,
            Reason::Unidentified => 16,
            Reason::Misconfigured => 13,
        };
        let message = refusal.in_words();
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        let requested =
            refusal.request().headers.get(CONTENT_TYPE).filter(|_| is_grpc(refusal.request().headers));
        headers.insert(CONTENT_TYPE, requested.cloned().unwrap_or(HeaderValue::from_static(GRPC)));
        headers.insert(STATUS, u16::from(code).into());
        headers.insert(PUSHBACK, pushback(refusal.retry_after()).into());
        let details = STANDARD_NO_PAD.encode(status(code, &message, refusal));
        // ASCII without control characters, so only `%`, which names of headers may contain, needs an encoding.
        for (name, text) in [(MESSAGE, message.replace('%', "%25")), (DETAILS, details)] {
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// The value of [`PUSHBACK`], rounded up.
fn pushback(wait: Option<Duration>) -> i32 {
    let milliseconds = wait.map(|wait| wait.as_nanos().div_ceil(1_000_000));
    milliseconds.and_then(|milliseconds| i32::try_from(milliseconds).ok()).unwrap_or(-1)
}

/// Whether these are the headers of a gRPC (or gRPC-Web) message.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| {
        kind.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC.as_bytes()))
    })
}

/// Encodes a `google.rpc.Status` (google/rpc/status.proto, google/rpc/error_details.proto).
fn status(code: u8, message: &str, refusal: &Refusal<'_>) -> Vec<u8> {
    let mut status = Vec::new();
    number(&mut status, 1, u64::from(code));
    bytes(&mut status, 2, message.as_bytes());
    if let Some(wait) = refusal.retry_after() {
        let mut duration = Vec::new();
        number(&mut duration, 1, wait.as_secs());
        number(&mut duration, 2, u64::from(wait.subsec_nanos()));
        let mut retry_info = Vec::new();
        bytes(&mut retry_info, 1, &duration);
        detail(&mut status, "type.googleapis.com/google.rpc.RetryInfo", &retry_info);
    }
    if matches!(refusal.reason(), Reason::QuotaExceeded | Reason::Banned) {
        let mut failure = Vec::new();
        for name in refusal.violated_policies() {
            let mut violation = Vec::new();
            bytes(&mut violation, 1, name.as_bytes()); // subject
            bytes(&mut violation, 2, b"the quota is used up"); // description
            bytes(&mut failure, 1, &violation);
        }
        detail(&mut status, "type.googleapis.com/google.rpc.QuotaFailure", &failure);
    }
    status
}

/// Appends a `google.protobuf.Any` to a status.
fn detail(status: &mut Vec<u8>, kind: &str, value: &[u8]) {
    let mut any = Vec::new();
    bytes(&mut any, 1, kind.as_bytes());
    bytes(&mut any, 2, value);
    bytes(status, 3, &any);
}

/// Appends a numeric field. Zero is the default, and omitted.
fn number(message: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        message.push(field << 3);
        variable(message, value);
    }
}

/// Appends a field with a length.
fn bytes(message: &mut Vec<u8>, field: u8, value: &[u8]) {
    message.push(field << 3 | 2);
    variable(message, value.len() as u64);
    message.extend_from_slice(value);
}

/// The lowest eight bits.
fn lowest(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// Appends a number as a varint: groups of seven bits, the lowest first.
fn variable(message: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        message.push(lowest(value) | 0x80);
        value >>= 7;
    }
    message.push(lowest(value));
}
