//! Hostile requests: for any headers, nothing panics, and no header creates a new key that it must not create.

mod support;

use http::{HeaderName, HeaderValue, Request};
use proptest::prelude::*;
use ratelimit_tower::{Cost, KeySource, PeerAddress, Policies, Policy, TrustedProxies};
use tower::ServiceExt as _;

use support::*;

const NAMES: [&str; 9] = [
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

type Headers = Vec<(usize, Vec<u8>)>;

fn headers() -> impl Strategy<Value = Headers> {
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "(bearer|Bearer|BEARER)[ \\t]{0,3}[!-~]{0,90}".prop_map(String::into_bytes),
        "[0-9]{0,25}".prop_map(String::into_bytes),
        "((for=)?\"?\\[?[0-9a-f:.]{0,40}\\]?(:[0-9]{0,6})?\"?[,;] ?){0,20}".prop_map(String::into_bytes),
    ];
    prop::collection::vec((0..NAMES.len(), value), 0..12)
}

fn request_with(headers: &Headers, peer: [u8; 4]) -> Request<Body> {
    let mut request = Request::new(Body::default());
    request.extensions_mut().insert(PeerAddress(peer.into()));
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            request.headers_mut().append(HeaderName::from_static(NAMES[*name]), value);
        }
    }
    request
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_header_of_an_untrusted_peer_makes_a_new_client(first in headers(), second in headers()) {
        let proxies = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
        let policy = Policy::new("address", KeySource::client_address(proxies), limit("1/min")).unwrap();
        let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
        let seen = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let first = service.clone().oneshot(request_with(&first, [192, 0, 2, 1])).await.unwrap();
            let second = service.clone().oneshot(request_with(&second, [192, 0, 2, 1])).await.unwrap();
            let second_is_grpc = second.headers().contains_key("grpc-status");
            (first.status().as_u16(), if second_is_grpc { 429 } else { second.status().as_u16() })
        });
        prop_assert_eq!(seen, (200, 429));
    }

    #[test]
    fn requests_with_hostile_headers_are_admitted_or_refused(headers in headers(), peer in prop::sample::select(vec![[10, 0, 0, 1], [192, 0, 2, 1]])) {
        let proxies = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
        let key = KeySource::api_key(HeaderName::from_static("x-api-key"))
            .or(KeySource::bearer_token())
            .or(KeySource::header(HeaderName::from_static("host")));
        let cost = Cost::content_length(std::num::NonZeroU64::new(10).unwrap(), 3);
        let policies = Policies::new([
            Policy::new("address", KeySource::client_address(proxies), limit("5/min")).unwrap(),
            Policy::new("key", key, limit("9/min")).unwrap().cost(cost),
        ]).unwrap();
        let service = service(&layer_under(&clock(), policies));
        let status = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            service.oneshot(request_with(&headers, peer)).await.unwrap().status().as_u16()
        });
        prop_assert!(status == 200 || status == 429, "{}", status);
    }
}

#[tokio::test]
async fn token_schemes_ignore_case_and_two_tokens_count_as_none() {
    let policy = Policy::new("token", KeySource::bearer_token(), limit("1/min")).unwrap();
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
    assert_eq!(statuses(&service, 1, &[("authorization", "Bearer abc")]).await, [200]);
    assert_eq!(statuses(&service, 1, &[("authorization", "bEARER  abc")]).await, [429]);
    assert_eq!(statuses(&service, 1, &[("authorization", "Bearer abcd")]).await, [200]);
    // None of these is a token, so they count together.
    assert_eq!(statuses(&service, 1, &[]).await, [200]);
    for none in ["", "Bearer", "Bearer ", "Basic abc", "Bearerabc"] {
        assert_eq!(statuses(&service, 1, &[("authorization", none)]).await, [429], "{none}");
    }
    let two = [("authorization", "Bearer abc"), ("authorization", "Bearer new")];
    assert_eq!(statuses(&service, 1, &two).await, [429]);
}
