//! Concurrency limits: held until the response has ended, however it ends, and renewed meanwhile.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use ratelimit_core::clock::TokioClock;
use ratelimit_core::{Limits, RateLimiter, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::{Charge, Cost, KeySource, Plan, Policies, Policy, RateLimitLayer, Settle};
use tokio::sync::Semaphore;
use tower::{Layer as _, ServiceExt as _};

use crate::bodies::{Body, Step, body};
use crate::rig::{Rig, WAYS, Way, empty, policy, read};
use crate::support::only;

fn held(limits: &str) -> Policy {
    held_as("work", limits)
}

fn held_as(name: &str, limits: &str) -> Policy {
    Policy::new(name, KeySource::everybody(), limits.parse::<Limits>().unwrap()).unwrap()
}

/// Waits until a request is admitted, and returns its response.
async fn admitted(rig: &Rig) -> Response<Body> {
    for _ in 0..5_000 {
        let response = rig.get().await;
        if response.status() == 200 {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("nothing was released within five seconds");
}

async fn is_refused(rig: &Rig) -> bool {
    // A release is on a task of its own.
    tokio::time::sleep(Duration::from_millis(20)).await;
    rig.get().await.status() == 429
}

#[tokio::test]
async fn units_are_held_until_the_body_has_been_read_or_dropped() {
    for way in WAYS {
        let rig = Rig::new(way, [held("2 at once")], async |_| {
            Ok(Response::new(body([Step::Bytes(3), Step::Bytes(4)])))
        });
        let (first, mut second) = (rig.get().await, rig.get().await);
        assert_eq!((first.status(), second.status()), (200.try_into().unwrap(), 200.try_into().unwrap()));
        assert!(is_refused(&rig).await, "{way:?}");

        // Read to the end.
        assert_eq!(read(first).await, Ok(7));
        let third = admitted(&rig).await;
        assert!(is_refused(&rig).await, "{way:?}");

        // Read half and dropped.
        let _ = second.frame().await.unwrap().unwrap();
        assert!(is_refused(&rig).await, "{way:?}");
        drop(second);
        let fourth = admitted(&rig).await;
        assert!(is_refused(&rig).await, "{way:?}");
        drop((third, fourth));
    }
}

#[tokio::test]
async fn units_are_released_without_a_response() {
    for way in WAYS {
        let [gate, called] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        let rig = Rig::new(way, [held("1 at once")], {
            let (gate, called) = (gate.clone(), called.clone());
            move |_| {
                let (gate, called) = (gate.clone(), called.clone());
                async move {
                    called.add_permits(1);
                    gate.acquire().await.map_err(|error| error.to_string())?.forget();
                    Err("failed".to_owned())
                }
            }
        });
        let hanging = tokio::spawn(rig.call(http::Request::new(empty())));
        // It has been admitted, and waits for the service.
        called.acquire().await.unwrap().forget();
        assert!(is_refused(&rig).await, "{way:?}");
        hanging.abort();
        // The caller is gone; the next request fails, and the one after it gets through as well.
        for _ in 0..2 {
            gate.add_permits(1);
            let mut outcome = rig.call(http::Request::new(empty())).await;
            while outcome.as_ref().is_ok_and(|response| response.status() == 429) {
                tokio::time::sleep(Duration::from_millis(1)).await;
                outcome = rig.call(http::Request::new(empty())).await;
            }
            assert_eq!(outcome.err().as_deref(), Some("failed"), "{way:?}");
        }
    }
}

/// The client disconnects when the store has charged the unit and its answer has not arrived yet, or at another moment.
#[tokio::test]
async fn units_are_released_if_the_client_disconnects_while_the_store_decides() {
    let shadow = held("1000/h").in_shadow();
    let rig = Rig::new(Way::Later, [held_as("held", "1 at once"), shadow], async |_| {
        Ok(Response::new(body([Step::Bytes(1)])))
    });
    for polls in 1..8 {
        // The release of the unit before is a task.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let mut request = Box::pin(rig.call(http::Request::new(empty())));
        let mut left = polls;
        let disconnected = poll_fn(|context| {
            left -= 1;
            let answered = request.as_mut().poll(context).map(drop);
            context.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { answered }
        });
        disconnected.await;
        drop(request);
        admitted(&rig).await;
    }
}

#[tokio::test]
async fn nothing_is_held_if_the_outcome_decides_about_the_charge() {
    for way in WAYS {
        let policy = held("1 at once; 3/day fixed").charge(Charge::only_if(|_| true));
        let rig = Rig::new(way, [policy], async |_| Ok(Response::new(body([Step::Bytes(1)]))));
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(rig.get().await.status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 200, 429], "{way:?}");
        let single = held("1 at once").charge(Charge::only_if(|_| true));
        let rig = Rig::new(way, [single], async |_| Ok(Response::new(body([Step::Bytes(1)]))));
        let responses = [rig.get().await, rig.get().await];
        assert!(responses.iter().all(|response| response.status() == 200), "{way:?}");
    }
}

#[tokio::test]
async fn other_limits_stay_charged_and_settle_beside_it() {
    for way in WAYS {
        let policies = [
            held("10 at once lease 1h; 28/day fixed").settle(Settle::by_handler()),
            policy("tokens", Settle::by_handler()).charge(Charge::before()),
            Policy::new("given-back", KeySource::everybody(), "50 at once".parse::<Limits>().unwrap())
                .unwrap()
                .charge(Charge::refund_if(|_| true)),
        ];
        let rig = Rig::new(way, policies, async |request: http::Request<Body>| {
            ratelimit_tower::Charged::of(request.extensions()).settle(7);
            Ok(Response::new(body([Step::Bytes(1)])))
        });
        for nth in 1..=3 {
            let response = admitted(&rig).await;
            read(response).await.unwrap();
            rig.charges("tokens", 7 * nth).await;
        }
        // What was settled is not held: of the ten, each of the seven that the day has left.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut responses = Vec::new();
        for nth in 0..7 {
            responses.push(rig.get().await);
            assert_eq!(responses[nth].status(), 200, "{way:?}: request {nth}");
        }
        assert!(is_refused(&rig).await, "{way:?}: 28 a day");
    }
}

/// The head says that the request costs nothing, while the body, which the limit is about, is still being sent.
#[tokio::test]
async fn a_true_cost_of_zero_releases_nothing_before_the_body_has_ended() {
    let cost = http::HeaderName::from_static("x-cost");
    for way in WAYS {
        for settled in [
            held("1 at once; 100/day fixed").charge(Charge::refund_if(|_| true)),
            held("1 at once; 100/day fixed").settle(Settle::response_header(cost.clone())),
        ] {
            let rig = Rig::new(way, [settled], async |_| {
                let mut response = Response::new(body([Step::Bytes(1), Step::Bytes(1)]));
                response.headers_mut().insert("x-cost", 0.into());
                Ok(response)
            });
            let first = rig.get().await;
            assert_eq!(first.status(), 200);
            assert!(is_refused(&rig).await, "{way:?}");
            read(first).await.unwrap();
            admitted(&rig).await;
        }
    }
}

#[tokio::test]
async fn plans_that_are_chosen_for_a_request_hold_as_well() {
    for way in WAYS {
        let plan = Plan::new("single", "1 at once".parse::<Limits>().unwrap()).unwrap();
        let rig = Rig::new(way, [held("1000/h").plans(move |_| Some(plan.clone()))], async |_| {
            Ok(Response::new(body([Step::Bytes(1)])))
        });
        let first = rig.get().await;
        assert!(is_refused(&rig).await, "{way:?}");
        drop(first);
        admitted(&rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_response_is_renewed_and_fields_say_what_is_limited() {
    let limits: Limits = "1 at once lease 300ms".parse().unwrap();
    let policy = Policy::new("work", KeySource::everybody(), limits).unwrap();
    let limiter = RateLimiter::without_limits(Arc::new(MemoryStore::new()))
        .with_clock(TokioClock::starting_at(Timestamp::from_secs(1_000)));
    let layer = RateLimitLayer::in_process(limiter, Policies::new([policy]).unwrap()).with_body(Body::new);
    let layer = layer.answer_with(|_: &ratelimit_tower::Refusal<'_>| {
        Response::builder().status(429).body(empty()).unwrap()
    });
    let service = layer.layer(tower::service_fn(async |_: http::Request<Body>| {
        Ok::<_, String>(Response::new(body([Step::Bytes(1), Step::Hang])))
    }));
    let get = || service.clone().oneshot(http::Request::new(empty()));
    let mut first = get().await.unwrap();
    assert_eq!(only(first.headers(), "ratelimit-policy"), r#""work";q=1;qu="concurrent-requests""#);
    let _ = first.body_mut().frame().await.unwrap().unwrap();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let refused = get().await.unwrap();
        assert_eq!(refused.status(), 429);
        assert_eq!(only(refused.headers(), "retry-after"), "1");
    }
    drop(first);
    // A task releases it, not the end of the lease.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(get().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_cost_is_how_much_is_held() {
    for way in WAYS {
        let rig = Rig::new(way, [held("5 at once").cost(Cost::units(2))], async |_| {
            Ok(Response::new(body([Step::Bytes(1)])))
        });
        let responses = [rig.get().await, rig.get().await];
        assert!(is_refused(&rig).await, "{way:?}");
        drop(responses);
        admitted(&rig).await;
    }
}
