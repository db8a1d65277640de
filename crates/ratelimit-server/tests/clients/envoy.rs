//! Envoy with its rate limit filter.

use crate::server;
use crate::surroundings::envoy::Asking;
use crate::surroundings::{Answer, Browser, PATIENT, Service};

#[tokio::test(flavor = "multi_thread")]
async fn five_requests_of_a_key_pass_and_the_sixth_gets_429_with_the_fields() {
    let (service, server, browser) = (Service::start().await, server().await, Browser::new());
    let servers = [server.grpc()];
    let envoy =
        Asking { service: service.address, servers: &servers, timeout: PATIENT, deny: true, health: false };
    let envoy = envoy.start().await;
    for key in ["alice", "bob"] {
        for left in (0..5).rev() {
            let answer = browser.get(envoy.address(), "/", key).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, "served"), "{answer:?}");
            says_what_is_left(&answer, left);
        }
        for _ in 0..3 {
            let answer = browser.get(envoy.address(), "/", key).await;
            assert_eq!(answer.status, 429, "{answer:?}");
            says_what_is_left(&answer, 0);
            let wait: u64 = answer.field("retry-after").parse().expect("a number of seconds");
            assert!((1..=86_400).contains(&wait), "{answer:?}");
            assert_eq!(answer.field("x-envoy-ratelimited"), "true", "Envoy answers: {answer:?}");
        }
        assert_eq!(service.served(key), 5);
    }
    let unlimited = browser.get(envoy.address(), "/", "").await;
    assert_eq!((unlimited.status, unlimited.field("ratelimit")), (200, ""), "{unlimited:?}");
}

/// The fields of the IETF draft.
fn says_what_is_left(answer: &Answer, left: u64) {
    assert_eq!(answer.field("ratelimit-policy"), "\"requests\";q=5;w=86400", "{answer:?}");
    let field = answer.field("ratelimit");
    assert!(field.starts_with(&format!("\"requests\";r={left};t=")), "{answer:?}");
}
