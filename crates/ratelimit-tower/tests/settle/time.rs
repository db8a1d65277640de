//! Requests that are not settled in time.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use ratelimit_tower::{Charged, Settle, Unsettled};
use tokio::task::yield_now;

use crate::bodies::{Body, Step, body, run};
use crate::rig::{Rig, WAYS, per, policy, read};

const MINUTE: Duration = Duration::from_secs(60);

async fn sleeps(rig: &Rig) {
    let sleeps = async {
        while rig.clock.sleepers() == 0 {
            yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), sleeps).await.unwrap();
}

#[tokio::test]
async fn a_body_that_hangs_is_settled_by_the_rule() {
    for way in WAYS {
        for (records, kept, refunded, charged) in [
            (None, 100, 0, 7),
            (Some((40, false)), 100, 40, 40), // more may come: not less than it has cost already
            (Some((40, true)), 40, 40, 40),
            (Some((400, false)), 400, 400, 400),
        ] {
            let settle = || Settle::by_handler().within(MINUTE);
            let policies = [
                policy("kept", settle()),
                policy("refunded", settle().otherwise(Unsettled::Refund)),
                policy("charged", settle().otherwise(Unsettled::Charge(7))),
                policy("bytes", Settle::response_bytes(per(1)).within(MINUTE).otherwise(Unsettled::Refund)),
                policy(
                    "time",
                    Settle::duration(Duration::from_secs(20)).within(MINUTE).otherwise(Unsettled::Refund),
                ),
                policy("reserved", Settle::bytes(per(1)).within(MINUTE)),
                policy("closure", Settle::function(|_| Some(3)).within(MINUTE)),
                policy("patient", Settle::by_handler().within(2 * MINUTE).otherwise(Unsettled::Charge(1))),
                policy("endless", Settle::by_handler().otherwise(Unsettled::Charge(2))),
            ];
            let rig = Rig::new(way, policies, move |request: Request<Body>| async move {
                match records {
                    Some((units, true)) => Charged::of(request.extensions()).settle(units),
                    Some((units, false)) => Charged::of(request.extensions()).add(units),
                    None => {}
                }
                Ok(Response::new(body([Step::Bytes(6), Step::Hang])))
            });
            let mut response = rig.get().await;
            response.body_mut().frame().await.unwrap().unwrap();
            sleeps(&rig).await;
            rig.clock.advance(MINUTE - Duration::from_nanos(1));
            rig.charges("kept", 100).await;
            rig.charges("refunded", 100).await;
            rig.clock.advance(Duration::from_nanos(1));
            rig.charges("kept", kept).await;
            rig.charges("refunded", refunded).await;
            rig.charges("charged", charged).await;
            rig.charges("bytes", 6).await;
            rig.charges("time", 3).await;
            rig.charges("reserved", 100).await;
            rig.charges("closure", 100).await;
            rig.charges("patient", 100).await;
            rig.charges("endless", 100).await;
            sleeps(&rig).await;
            rig.clock.advance(MINUTE);
            let whole = records.map(|(units, _)| units);
            rig.charges("patient", whole.unwrap_or(1)).await;
            rig.charges("endless", 100).await;
            drop(response);
            rig.charges("endless", whole.unwrap_or(2)).await;
            rig.charges("kept", kept).await;
            rig.charges("bytes", 6).await;
            rig.charges("closure", 100).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_ends_in_time_is_settled_once() {
    for way in WAYS {
        let rig = Rig::new(way, [policy("a", Settle::response_bytes(per(1)).within(MINUTE))], |_| async {
            Ok(Response::new(body([Step::Bytes(6)])))
        });
        let response = rig.get().await;
        sleeps(&rig).await;
        read(response).await.unwrap();
        rig.charges("a", 6).await;
        rig.clock.advance(2 * MINUTE);
        rig.charges("a", 6).await;
    }
}

/// The time counts from the head of the response.
#[tokio::test]
async fn the_time_does_not_begin_before_the_response() {
    for way in WAYS {
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let answered = std::sync::Arc::new(std::sync::Mutex::new(Some(answered)));
        let rig = Rig::new(
            way,
            [policy("a", Settle::by_handler().within(MINUTE))],
            move |request: Request<Body>| {
                let answered = answered.lock().unwrap().take().unwrap();
                async move {
                    answered.await.unwrap();
                    let charged = Charged::of(request.extensions());
                    Ok(Response::new(body([run(move || charged.settle(5))])))
                }
            },
        );
        let response = tokio::spawn(rig.call(Request::new(crate::rig::empty())));
        rig.charges("a", 100).await;
        rig.clock.advance(10 * MINUTE);
        rig.charges("a", 100).await;
        answer.send(()).unwrap();
        let response = response.await.unwrap().unwrap();
        sleeps(&rig).await;
        rig.clock.advance(MINUTE / 2);
        read(response).await.unwrap();
        rig.charges("a", 5).await;
    }
}
