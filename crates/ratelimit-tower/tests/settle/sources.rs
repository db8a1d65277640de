//! Each source of a true cost, while requests end as they should.

use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use ratelimit_tower::{Charged, End, Settle, Unsettled};

use crate::bodies::{Body, Step, body, run};
use crate::rig::{Rig, WAYS, empty, per, policy, read};

#[tokio::test]
async fn the_handler_names_the_cost() {
    for way in WAYS {
        let policies = [policy("a", Settle::by_handler()), policy("b", Settle::by_handler())];
        let rig = Rig::new(way, policies, |request: Request<Body>| async move {
            let charged = Charged::of(request.extensions());
            charged.settle(1);
            charged.settle(7);
            let later = charged.policy("b");
            later.add(20);
            // From another task, while the body is sent.
            let steps = [
                Step::Bytes(1),
                run(move || {
                    let later = later.clone();
                    std::thread::spawn(move || later.add(300)).join().unwrap();
                }),
            ];
            Ok(Response::new(body(steps)))
        });
        let response = rig.get().await;
        rig.charges("a", 100).await;
        assert_eq!(read(response).await.unwrap(), 1);
        rig.charges("a", 7).await; // refunded
        rig.charges("b", 327).await; // charged on top
    }
}

#[tokio::test]
async fn a_header_names_the_cost() {
    let of = |settle: Settle, values: &'static [&'static str]| async move {
        let mut results = Vec::new();
        for way in WAYS {
            let rig = Rig::new(way, [policy("a", settle.clone())], move |_| async move {
                let mut response = Response::new(body([Step::Hang]));
                values.iter().for_each(|value| {
                    response.headers_mut().append("x-tokens", value.parse().unwrap());
                });
                Ok(response)
            });
            let response = rig.get().await;
            // It has settled before the response is returned.
            let used = rig.used("a").await;
            let sent = response.headers().get_all("x-tokens").iter().count();
            drop(response);
            rig.charges("a", used).await;
            results.push((used, sent));
        }
        assert_eq!(results[0], results[1]);
        results[0]
    };
    let name = || "x-tokens".parse().unwrap();
    assert_eq!(of(Settle::response_header(name()), &["7"]).await, (7, 1));
    assert_eq!(of(Settle::take_response_header(name()), &["700"]).await, (700, 0));
    let refunding = Settle::take_response_header(name()).otherwise(Unsettled::Refund);
    for unusable in [&[][..], &["+7"], &["7.5"], &["seven"], &[""], &["7", "7"], &["18446744073709551616"]] {
        assert_eq!(of(Settle::response_header(name()), unusable).await.0, 100, "{unusable:?}");
        assert_eq!(of(refunding.clone(), unusable).await, (0, 0), "{unusable:?}");
    }
    let charging = Settle::response_header(name()).otherwise(Unsettled::Charge(3));
    assert_eq!(of(charging, &[]).await.0, 3);
    assert_eq!(of(Settle::response_header(name()), &["18446744073709551615"]).await.0, 1_000_000_000);
}

#[tokio::test]
async fn the_bytes_of_bodies_are_counted() {
    for way in WAYS {
        let policies = [
            policy("in", Settle::request_bytes(per(1))),
            policy("out", Settle::response_bytes(per(1))),
            policy("both", Settle::bytes(per(10))),
        ];
        let rig = Rig::new(way, policies, |request: Request<Body>| async move {
            let trailers = HeaderMap::new();
            if request.method() == "HEAD" {
                return Ok(Response::new(empty()));
            }
            read(Response::new(request.into_body())).await?;
            Ok(Response::new(body([Step::Bytes(200), Step::Bytes(0), Step::Trailers(trailers)])))
        });
        let sent = body([Step::Bytes(30), Step::Bytes(1)]);
        let response = rig.call(Request::new(sent)).await.unwrap();
        assert_eq!(read(response).await.unwrap(), 200);
        rig.charges("in", 31).await;
        rig.charges("out", 200).await;
        rig.charges("both", 24).await;
        // A body without bytes costs nothing.
        let head = Request::head("/").body(empty()).unwrap();
        drop(rig.call(head).await.unwrap());
        rig.charges("in", 31).await;
        rig.charges("out", 200).await;
        rig.charges("both", 24).await;
    }
}

#[tokio::test]
async fn time_costs() {
    for way in WAYS {
        let policies = [policy("a", Settle::duration(Duration::from_secs(1)))];
        let rig = Rig::new(way, policies, |_| async { Ok(Response::new(body([Step::Bytes(1)]))) });
        let response = rig.get().await;
        rig.clock.advance(Duration::from_millis(2_001));
        read(response).await.unwrap();
        rig.charges("a", 3).await;
    }
}

#[tokio::test]
async fn a_closure_sees_head_and_trailers() {
    for way in WAYS {
        let settle = Settle::function(|end: &End<'_>| {
            assert_eq!(end.status, 201);
            assert_eq!(end.extensions.get(), Some(&5_u64));
            assert_eq!((end.response_bytes, end.elapsed, end.complete), (4, Duration::from_secs(6), true));
            let number = |headers: &HeaderMap| headers.get("x-tokens")?.to_str().ok()?.parse::<u64>().ok();
            Some(number(end.headers)? + number(end.trailers?)?)
        });
        let rig = Rig::new(way, [policy("a", settle)], |_| async {
            let trailers = HeaderMap::from_iter([("x-tokens".parse().unwrap(), "30".parse().unwrap())]);
            let steps = [Step::Bytes(4), Step::Trailers(trailers)];
            let response = Response::builder().status(201).header("x-tokens", "2").extension(5_u64);
            Ok(response.body(body(steps)).unwrap())
        });
        let response = rig.get().await;
        rig.clock.advance(Duration::from_secs(6));
        let trailers = response.into_body().collect().await.unwrap().trailers().cloned();
        assert_eq!(trailers.unwrap()["x-tokens"], "30");
        rig.charges("a", 32).await;
    }
}

#[tokio::test]
async fn an_estimate_of_zero_is_settled_as_well() {
    for way in WAYS {
        let policies = [policy("a", Settle::response_bytes(per(1))).cost(ratelimit_tower::Cost::units(0))];
        let rig = Rig::new(way, policies, |_| async { Ok(Response::new(body([Step::Bytes(9)]))) });
        read(rig.get().await).await.unwrap();
        rig.charges("a", 9).await;
    }
}

#[tokio::test]
async fn the_fields_show_the_state_at_admission() {
    for way in WAYS {
        let rig = Rig::new(way, [policy("a", Settle::by_handler())], |request: Request<Body>| async move {
            Charged::of(request.extensions()).settle(5);
            Ok(Response::new(empty()))
        });
        let response = rig.get().await;
        assert!(response.headers()["ratelimit"].to_str().unwrap().contains(";r=999999900;"));
        rig.charges("a", 5).await;
    }
}
