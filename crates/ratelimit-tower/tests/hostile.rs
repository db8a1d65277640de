//! Hostile requests: for any headers, nothing panics, and no header creates a new key that it must not create.

mod support;

use http::Request;
use proptest::prelude::*;
use ratelimit_tower::{KeySource, Policies, Policy};
use tower::ServiceExt as _;

use support::hostile::{NAMES, by_address, by_key};
use support::*;

type Headers = Vec<(usize, Vec<u8>)>;

fn request_with(headers: &Headers, peer: [u8; 4]) -> Request<Body> {
    hostile::request(headers.iter().map(|(name, value)| (*name, value.as_slice())), peer)
}

fn headers() -> impl Strategy<Value = Headers> {
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "(bearer|Bearer|BEARER)[ \\t]{0,3}[!-~]{0,90}".prop_map(String::into_bytes),
        "[0-9]{0,25}".prop_map(String::into_bytes),
        "((for=)?\"?\\[?[0-9a-f:.]{0,40}\\]?(:[0-9]{0,6})?\"?[,;] ?){0,20}".prop_map(String::into_bytes),
    ];
    prop::collection::vec((0..NAMES.len(), value), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_header_of_an_untrusted_peer_makes_a_new_client(first in headers(), second in headers()) {
        let service = service(&layer_under(&clock(), Policies::new([by_address("1/min")]).unwrap()));
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
        let policies = Policies::new([by_address("5/min"), by_key()]).unwrap();
        let service = service(&layer_under(&clock(), policies));
        let status = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            service.oneshot(request_with(&headers, peer)).await.unwrap().status().as_u16()
        });
        // 400 if a key is sent twice.
        prop_assert!(matches!(status, 200 | 400 | 429), "{}", status);
    }
}

#[tokio::test]
async fn token_schemes_ignore_case_and_two_tokens_are_refused() {
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
    assert_eq!(statuses(&service, 1, &two).await, [400]);
}
