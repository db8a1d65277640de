//! The contract of a layer: readiness, errors, clones, waiting in a queue, many concurrent requests.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use ratelimit_core::ManualClock;
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{KeySource, Policies, Policy, RateLimitLayer};
use tower::{Layer, Service, ServiceExt as _};

use support::*;

/// A service that may only be called when it is ready, and whose clones are not ready.
#[derive(Default)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, calls: self.calls.clone() }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = String;
    type Future = std::future::Ready<Result<Response<Body>, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(self.ready, "called before it was ready");
        self.ready = false;
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::default()))
    }
}

/// Both ways of calling a store.
fn both(clock: &ManualClock, limits: &str) -> [RateLimitLayer<MemoryStore, ManualClock>; 2] {
    let of = || Policies::new([Policy::new("all", KeySource::everybody(), limit(limits)).unwrap()]).unwrap();
    [RateLimitLayer::in_process(limiter(clock), of()), RateLimitLayer::new(limiter(clock), of())]
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    for layer in both(&clock(), "3/min") {
        let inner = Strict::default();
        let calls = inner.calls.clone();
        let mut service = layer.layer(inner);
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(service.ready().await.unwrap().call(request(&[])).await.unwrap().status().as_u16());
        }
        assert_eq!(seen, [200, 200, 200, 429, 429]);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn readiness_errors_of_the_inner_service_are_passed_on() {
    #[derive(Clone)]
    struct Broken;
    impl Service<Request<Body>> for Broken {
        type Response = Response<Body>;
        type Error = String;
        type Future = std::future::Pending<Result<Response<Body>, String>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
            Poll::Ready(Err("out of order".to_owned()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::pending()
        }
    }
    for layer in both(&clock(), "3/min") {
        let mut service = layer.layer(Broken);
        assert_eq!(service.ready().await.err(), Some("out of order".to_owned()));
    }
}

#[tokio::test]
async fn queued_requests_wait_for_their_turn() {
    for place in 0..2 {
        let clock = clock();
        let layer = both(&clock, "10/s queue burst 3")[place].clone();
        let inner = Strict::default();
        let calls = inner.calls.clone();
        let service = layer.layer(inner);
        let mut turns: Vec<_> = (0..4).map(|_| Box::pin(service.clone().oneshot(request(&[])))).collect();
        let mut poll = |turn: usize| {
            turns[turn]
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .map(|answer| answer.unwrap().status().as_u16())
        };
        assert_eq!([poll(0), poll(1), poll(2)], [Poll::Ready(200), Poll::Pending, Poll::Pending]);
        assert_eq!(poll(3), Poll::Ready(429));
        clock.advance(Duration::from_millis(100) - Duration::from_nanos(1));
        assert_eq!(poll(1), Poll::Pending);
        clock.advance(Duration::from_nanos(1));
        assert_eq!([poll(1), poll(2)], [Poll::Ready(200), Poll::Pending]);
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_handles_admit_exactly_the_limit() {
    for layer in both(&clock(), "100/min") {
        let service = service(&layer);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let service = service.clone();
                tokio::spawn(async move { statuses(&service, 50, &[]).await })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap().iter().filter(|status| **status == 200).count();
        }
        assert_eq!(admitted, 100);
    }
}

#[tokio::test]
async fn replacing_policies_under_load_loses_no_count() {
    let layer = layer(&clock(), "100/min");
    let service = service(&layer);
    let policies = layer.policies().clone();
    let done = Arc::new(AtomicUsize::new(0));
    let exchange = std::thread::spawn({
        let done = done.clone();
        let other = Policy::new("other", KeySource::everybody(), limit("1000000/min")).unwrap();
        let with_other = Policies::new(policies.current().each().cloned().chain([other])).unwrap();
        let without = (*policies.current()).clone();
        move || {
            while done.load(Ordering::SeqCst) == 0 {
                policies.replace(with_other.clone());
                policies.replace(without.clone());
            }
        }
    });
    let answers = statuses(&service, 5000, &[]).await;
    done.store(1, Ordering::SeqCst);
    exchange.join().unwrap();
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 100);
}

#[test]
fn debug_output_hides_the_key() {
    let secret = KeySource::function(|_| Some("tell nobody"));
    let policy = Policy::new("p", secret, limit("1/s")).unwrap();
    let layer = RateLimitLayer::in_process(MemoryStore::new(), Policies::new([policy]).unwrap());
    let shown = format!("{layer:?} {:?}", layer.layer(()));
    assert!(shown.contains("\"p\"") && !shown.contains("tell"), "{shown}");
}
