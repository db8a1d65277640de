//! Requests that end before their end: at every stage, a charge is settled once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use ratelimit_tower::{Charge, Charged, End, Outcome, Policy, Settle, Unsettled};
use tokio::task::yield_now;

use crate::bodies::{Body, Step, body, body_with_drop, body_without_hint};
use crate::rig::{Rig, WAYS, Way, empty, per, policy, read};

/// One policy for each source, each with another rule.
fn policies() -> [Policy; 4] {
    [
        policy("handler", Settle::by_handler()),
        policy("bytes", Settle::bytes(per(1)).otherwise(Unsettled::Refund)),
        policy("time", Settle::duration(std::time::Duration::from_secs(1)).otherwise(Unsettled::Charge(8))),
        policy("header", Settle::response_header("x-cost".parse().unwrap()).otherwise(Unsettled::Charge(9))),
    ]
}

async fn charges(rig: &Rig, [handler, bytes, time, header]: [u64; 4]) {
    rig.charges("handler", handler).await;
    rig.charges("bytes", bytes).await;
    rig.charges("time", time).await;
    rig.charges("header", header).await;
}

#[tokio::test]
async fn without_a_response_the_rule_applies() {
    for way in WAYS {
        for records in [false, true] {
            let handler = if records { 44 } else { 100 };
            let by_rule = [handler, 0, 8, 9];
            let record = move |request: &Request<Body>| {
                if records {
                    Charged::of(request.extensions()).add(44);
                }
            };
            let rig = Rig::new(way, policies(), move |request| async move {
                record(&request);
                Err("it failed".to_owned())
            });
            rig.call(Request::new(empty())).await.unwrap_err();
            charges(&rig, by_rule).await;

            let rig = Rig::new(way, policies(), move |request| async move {
                record(&request);
                panic!("the handler panics, as the test wants")
            });
            tokio::spawn(rig.call(Request::new(empty()))).await.unwrap_err();
            charges(&rig, by_rule).await;

            let begun = Arc::new(tokio::sync::Notify::new());
            let notify = begun.clone();
            let rig = Rig::new(way, policies(), move |request| {
                record(&request);
                notify.notify_one();
                std::future::pending()
            });
            let waiting = tokio::spawn(rig.call(Request::new(empty())));
            begun.notified().await;
            charges(&rig, [100; 4]).await;
            waiting.abort();
            charges(&rig, by_rule).await;
        }
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_waits_for_its_turn_is_settled() {
    for way in WAYS {
        let queue: ratelimit_core::Limit = "100/s queue burst 1000".parse().unwrap();
        let waits = Policy::new("waits", ratelimit_tower::KeySource::everybody(), queue).unwrap();
        let waits = waits.cost(ratelimit_tower::Cost::units(100));
        let refunded = policy("a", Settle::by_handler().otherwise(Unsettled::Charge(2)));
        let rig = Rig::new(way, [waits, refunded], |_| async { Ok(Response::new(body([Step::Hang]))) });
        let first = rig.get().await;
        let waiting = tokio::spawn(rig.call(Request::new(empty())));
        rig.charges("a", 200).await;
        waiting.abort();
        rig.charges("a", 102).await;
        drop(first);
        rig.charges("a", 4).await;
    }
}

/// The service has answered, and the caller stops waiting while the store is being told.
#[tokio::test]
async fn a_settlement_in_progress_completes_without_its_caller() {
    let cost = || policy("a", Settle::response_header("x-cost".parse().unwrap()));
    let refund = policy("b", Settle::by_handler()).charge(Charge::refund_if(|_| true));
    let answered = Arc::new(AtomicBool::new(false));
    let seen = answered.clone();
    let rig = Rig::new(Way::Later, [cost(), refund], move |_| {
        seen.store(true, Ordering::Relaxed);
        std::future::ready(Ok(Response::builder().header("x-cost", "7").body(empty()).unwrap()))
    });
    let mut call = Box::pin(rig.call(Request::new(empty())));
    while !answered.load(Ordering::Relaxed) {
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    drop(call);
    rig.charges("a", 7).await;
    rig.charges("b", 0).await;
}

fn streams(
    at_drop: impl Fn(&Charged) + Clone + Send + Sync + 'static,
) -> impl Fn(Request<Body>) -> std::future::Ready<Result<Response<Body>, String>> + Clone {
    move |request: Request<Body>| {
        let charged = Charged::of(request.extensions());
        let (counting, at_drop) = (charged.clone(), at_drop.clone());
        let count = move || {
            crate::bodies::run({
                let counting = counting.clone();
                move || counting.add(3)
            })
        };
        let steps = [count(), Step::Bytes(10), count(), Step::Bytes(10), Step::Panic];
        std::future::ready(Ok(Response::new(body_with_drop(steps, move || at_drop(&charged)))))
    }
}

#[tokio::test]
async fn a_client_that_disconnects_pays_for_what_it_got() {
    for way in WAYS {
        for chunks in 0..=2 {
            let rig = Rig::new(way, policies(), streams(|_| ()));
            let mut response = rig.get().await;
            for _ in 0..chunks {
                response.body_mut().frame().await.unwrap().unwrap();
            }
            charges(&rig, [100, 100, 100, 9]).await;
            drop(response);
            charges(&rig, [if chunks == 0 { 100 } else { chunks * 3 }, chunks * 10, 1, 9]).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_panics_is_settled() {
    for way in WAYS {
        let rig = Rig::new(way, policies(), streams(|_| ()));
        let response = rig.get().await;
        tokio::spawn(read(response)).await.unwrap_err();
        charges(&rig, [6, 20, 1, 9]).await;
    }
}

#[tokio::test]
async fn what_a_body_records_when_it_is_dropped_counts() {
    for way in WAYS {
        let rig = Rig::new(way, policies(), streams(|charged| charged.settle(77)));
        drop(rig.get().await);
        charges(&rig, [77, 0, 1, 9]).await;
        // Also if the body that has ended is kept.
        let rig = Rig::new(way, policies(), |request: Request<Body>| async move {
            let charged = Charged::of(request.extensions());
            Ok(Response::new(body_with_drop([Step::Bytes(1)], move || charged.settle(77))))
        });
        let mut body = rig.get().await.into_body();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(1), false));
        while body.frame().await.is_some() {}
        charges(&rig, [77, 1, 1, 9]).await;
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test]
async fn a_closure_knows_how_the_body_ended() {
    for way in WAYS {
        for (reads, complete) in [(0, false), (1, false), (2, true), (3, true)] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let settle = Settle::function({
                let seen = seen.clone();
                move |end: &End<'_>| {
                    seen.lock().unwrap().push((end.response_bytes, end.complete));
                    None
                }
            });
            let settle = settle.otherwise(Unsettled::Charge(1));
            let rig = Rig::new(way, [policy("a", settle)], |_| async {
                Ok(Response::new(body([Step::Bytes(2), Step::Bytes(3)])))
            });
            let mut body = rig.get().await.into_body();
            for _ in 0..reads {
                let _ = body.frame().await;
            }
            drop(body);
            rig.charges("a", 1).await;
            assert_eq!(*seen.lock().unwrap(), [([0, 2, 5, 5][reads], complete)]);
        }
        let complete = || [policy("a", Settle::function(|end: &End<'_>| Some(u64::from(end.complete))))];
        let rig =
            Rig::new(way, complete(), |_| async { Ok(Response::new(body([Step::Bytes(5), Step::Fail]))) });
        read(rig.get().await).await.unwrap_err();
        rig.charges("a", 0).await;
        // A server does not poll again if the body has said that this was the last frame.
        let rig = Rig::new(way, complete(), |_| async {
            let whole = Full::new(Bytes::from("whole")).map_err(|never| match never {});
            Ok(Response::new(Body::new(whole)))
        });
        let mut response = rig.get().await;
        response.body_mut().frame().await.unwrap().unwrap();
        drop(response);
        rig.charges("a", 1).await;
        // Nor if it has sent what the head announces.
        for (length, units) in [("5", 1), ("6", 0)] {
            let rig = Rig::new(way, complete(), move |_| async move {
                let response = Response::builder().header("content-length", length);
                Ok(response.body(body_without_hint([Step::Bytes(5)])).unwrap())
            });
            let mut response = rig.get().await;
            response.body_mut().frame().await.unwrap().unwrap();
            drop(response);
            rig.charges("a", units).await;
        }
    }
}

#[tokio::test]
async fn refund_if_and_only_if_decide_before_the_body() {
    let is_failure = |outcome: Outcome<'_>| outcome.is_server_failure();
    let is_success = |outcome: Outcome<'_>| outcome.status().is_some_and(|status| status.is_success());
    for way in WAYS {
        let policies = || {
            [
                policy("refund", Settle::response_bytes(per(1))).charge(Charge::refund_if(is_failure)),
                policy("only", Settle::response_bytes(per(1))).charge(Charge::only_if(is_success)),
                policy("shadow", Settle::response_bytes(per(1))).in_shadow(),
                policy("header", Settle::response_header("x-cost".parse().unwrap()))
                    .charge(Charge::only_if(is_success)),
            ]
        };
        let rig = Rig::new(way, policies(), |request: Request<Body>| async move {
            let status = request.uri().path().trim_start_matches('/').parse::<u16>().unwrap();
            let response = Response::builder().status(status).header("x-cost", "4");
            Ok(response.body(body([Step::Bytes(5)])).unwrap())
        });
        let get = |status: u16| rig.call(Request::get(format!("/{status}")).body(empty()).unwrap());
        let response = get(200).await.unwrap();
        let before = [("refund", 100), ("only", 0), ("shadow", 100), ("header", 4)];
        for (name, units) in before {
            rig.charges(name, units).await;
        }
        read(response).await.unwrap();
        for (name, units) in [("refund", 5), ("only", 5), ("shadow", 5), ("header", 4)] {
            rig.charges(name, units).await;
        }
        let failed = get(500).await.unwrap();
        rig.charges("refund", 5).await;
        read(failed).await.unwrap();
        for (name, units) in [("refund", 5), ("only", 5), ("shadow", 10), ("header", 4)] {
            rig.charges(name, units).await;
        }
    }
}

#[tokio::test]
async fn a_refused_request_is_not_settled() {
    for way in WAYS {
        let none = policy("a", Settle::by_handler().otherwise(Unsettled::Charge(1)));
        let none = none.cost(ratelimit_tower::Cost::function(|_| 2_000_000_000));
        let rig = Rig::new(way, [none], |_| async { Ok(Response::new(empty())) });
        assert_eq!(rig.get().await.status(), 429);
        yield_now().await;
        rig.charges("a", 0).await;
    }
}
