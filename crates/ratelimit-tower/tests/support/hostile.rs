//! Requests with any header fields, and policies that read them.

use http::{HeaderName, HeaderValue, Request};
use ratelimit_tower::{Cost, KeySource, PeerAddress, Policy, TrustedProxies};

use super::{Body, limit};

/// The header fields that the policies read, and others that change an answer.
pub(crate) const NAMES: [&str; 9] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "authorization",
    "x-api-key",
    "content-length",
    "content-type",
    "traceparent",
    "host",
];

/// A request with these header fields, by the numbers of their names, as far as the values are valid.
pub(crate) fn request<'v>(
    fields: impl IntoIterator<Item = (usize, &'v [u8])>,
    peer: [u8; 4],
) -> Request<Body> {
    let mut request = Request::new(Body::default());
    request.extensions_mut().insert(PeerAddress(peer.into()));
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            request.headers_mut().append(HeaderName::from_static(NAMES[name % NAMES.len()]), value);
        }
    }
    request
}

/// By the client's address; the proxies in 10.0.0.0/8 are trusted.
pub(crate) fn by_address(limits: &str) -> Policy {
    let proxies = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
    Policy::new("address", KeySource::client_address(proxies), limit(limits)).unwrap()
}

/// By an API key, a token or the host, with a cost by length.
pub(crate) fn by_key() -> Policy {
    let key = KeySource::api_key(HeaderName::from_static("x-api-key"))
        .or(KeySource::bearer_token())
        .or(KeySource::header(HeaderName::from_static("host")));
    let cost = Cost::content_length(std::num::NonZeroU64::new(10).unwrap(), 3);
    Policy::new("key", key, limit("9/min")).unwrap().cost(cost)
}
