//! Fuzz targets: configuration files, and the header fields of requests.

mod support;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::Request;
use ratelimit_fuzz::{Input, fuzz};
use ratelimit_tower::config::{Config, ConfigError};
use ratelimit_tower::{PeerAddress, Policies, SharedPolicies};
use tower::ServiceExt as _;

use support::hostile::{by_address, by_key};
use support::*;

/// The statuses of requests under these policies, one after another; `None` if a request waits for its turn.
fn statuses(policies: impl Into<SharedPolicies>, requests: Vec<Request<Body>>) -> Vec<Option<u16>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _guard = runtime.enter();
    let service = service(&layer_under(&clock(), policies));
    let status = |request| {
        let answer = pin!(service.clone().oneshot(request));
        match answer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => {
                let answer = answer.unwrap();
                let is_grpc = answer.headers().contains_key("grpc-status");
                Some(if is_grpc { 429 } else { answer.status().as_u16() })
            }
            Poll::Pending => None,
        }
    };
    requests.into_iter().map(status).collect()
}

fn check_config(text: &str, config: Result<Config, ConfigError>) {
    match config {
        Ok(config) => {
            let get = || Request::get("/a/b?c=d").header("x-api-key", "k").header("host", "example.org");
            let mut request = get().body(Body::default()).unwrap();
            request.extensions_mut().insert(PeerAddress([192, 0, 2, 1].into()));
            for status in
                statuses(config.policies().clone(), vec![request, get().body(Body::default()).unwrap()])
            {
                // 500 if the key is missing: the second request has no address.
                assert!(matches!(status, None | Some(200 | 403 | 429 | 500)), "{status:?} under {text:?}");
            }
            for plan in config.plans() {
                assert!(config.plan(plan).is_some());
            }
        }
        Err(error) => {
            assert!(error.to_string().contains("the-file"), "{error}");
            // YAML also counts a carriage return by itself.
            let lines = text.split(['\n', '\r']).count();
            assert!(error.line().is_none_or(|line| (1..=lines).contains(&line)), "{error} of {lines}");
        }
    }
}

#[test]
fn config() {
    fuzz!("tests", "config", |bytes| {
        // Lists of clients can be read from other files.
        let Some(text) = str::from_utf8(bytes).ok().filter(|text| !text.contains("file")) else { return };
        check_config(text, Config::from_toml(text, "the-file"));
        check_config(text, Config::from_yaml(text, "the-file"));
    });
}

/// The input is header fields: the number of a name, and a value.
fn request_of(bytes: &[u8], peer: [u8; 4]) -> Request<Body> {
    let mut input = Input::new(bytes);
    let fields =
        std::iter::from_fn(|| (!input.is_empty()).then(|| (usize::from(input.byte()), input.some())));
    hostile::request(fields, peer)
}

#[test]
fn headers() {
    fuzz!("tests", "headers", |bytes| {
        // No header of an untrusted peer makes it another client.
        let requests = vec![request_of(bytes, [192, 0, 2, 1]), request_of(&[], [192, 0, 2, 1])];
        let policies = Policies::new([by_address("1/min")]).unwrap();
        assert_eq!(statuses(policies, requests), [Some(200), Some(429)]);
        // Behind a proxy, the same header is the same client. A key that is sent twice is refused.
        let requests = vec![request_of(bytes, [10, 0, 0, 1]), request_of(bytes, [10, 0, 0, 1])];
        let told = statuses(Policies::new([by_address("1/min"), by_key()]).unwrap(), requests);
        let is_right = matches!(told[..], [Some(200 | 429), Some(429)] | [Some(400), Some(400)]);
        assert!(is_right, "{told:?}");
    });
}
