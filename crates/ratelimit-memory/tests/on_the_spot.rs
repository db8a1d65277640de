//! Each synchronous method does the same as its async counterpart.

use ratelimit_memory::{Decision, Limit, Limits, ManualClock, MemoryStore, RateLimiter, Request, Timestamp};

type Limiter = RateLimiter<MemoryStore, ManualClock>;

fn limiter(limits: &[&str]) -> Limiter {
    let limits = Limits::new(limits.iter().map(|text| text.parse::<Limit>().unwrap())).unwrap();
    RateLimiter::new(MemoryStore::new(), limits).with_clock(ManualClock::at(Timestamp::from_secs(1_000)))
}

/// Runs a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn sync_and_async_calls_decide_alike() {
    // A single limit has its own code path; under two of these, some of the requests can never fit.
    for limits in [
        &["3/min", "5/h burst 5"][..],
        &["3/min"],
        &["2/min fixed"],
        &["1/min"],
        &["5/h burst 5"],
        &["1/min burst 1"],
        &["3/min precision 10s"],
        &["3/min log"],
    ] {
        decides_alike(limits);
    }
}

fn decides_alike(limits: &[&str]) {
    let (waiting, spot) = (limiter(limits), limiter(limits));
    let mut charged: Option<[Decision<'_>; 2]> = None;
    for step in 0..40 {
        let request = Request::new("k").cost(1 + step % 2);
        let (one, other) = match step % 6 {
            0 | 3 => (at_once(waiting.check(&request)), spot.check_now(&request)),
            1 => (at_once(waiting.would_allow(&request)), spot.would_allow_now(&request)),
            2 => (at_once(waiting.peek(&request)), spot.peek_now(&request)),
            4 => (at_once(waiting.charge(&request)), spot.charge_now(&request)),
            _ => {
                if let Some([one, other]) = charged.take() {
                    at_once(waiting.refund(&one)).unwrap();
                    spot.refund_now(&other);
                }
                if step == 23 {
                    at_once(waiting.reset("k")).unwrap();
                    spot.reset_now("k").unwrap();
                }
                continue;
            }
        };
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one, other, "{limits:?}, step {step}");
        if step % 6 == 0 && one.charged() {
            charged = Some([one, other]);
        }
        [&waiting, &spot]
            .into_iter()
            .for_each(|limiter| limiter.clock().advance(std::time::Duration::from_secs(7)));
    }
    assert_eq!(waiting.store().len(), spot.store().len());
}

#[test]
fn sync_calls_charge_peek_and_reset() {
    let limiter = limiter(&["3/min", "5/h burst 5"]);
    let left = || limiter.peek_now("k").unwrap().remaining();
    assert!(limiter.would_allow_now("k").unwrap().allowed() && left() == 3);
    assert!(limiter.charge_now(Request::new("k").cost(4)).unwrap().charged() && left() == 0);
    assert!(!limiter.would_allow_now("k").unwrap().allowed());
    limiter.reset_now("k").unwrap();
    assert!(limiter.store().is_empty() && left() == 3);
}

/// The refusal starts a ban when all requests are decided, so the request after it, which costs nothing, is allowed.
#[test]
fn batches_count_refusals_alike() {
    let limits = ["1/min", "ban 1h after 1 in 1min"];
    let (waiting, spot) = (limiter(&limits), limiter(&limits));
    let requests = [1, 1, 0].map(|cost| Request::new("k").cost(cost));
    let (one, other) = (at_once(waiting.check_many(&requests)), spot.check_many_now(&requests));
    let reported = |decisions: Vec<Result<Decision<'_>, _>>| {
        let reported = |decision: Result<Decision<'_>, ratelimit_memory::CheckError>| {
            let decision = decision.unwrap();
            (decision.allowed(), decision.retry_after(), decision.decided_by().index())
        };
        decisions.into_iter().map(reported).collect::<Vec<_>>()
    };
    let (one, other) = (reported(one), reported(other));
    assert_eq!(
        (one.iter().map(|(allowed, ..)| *allowed).collect::<Vec<_>>(), &one),
        (vec![true, false, true], &other)
    );
    assert_eq!(
        at_once(waiting.check("k")).unwrap().retry_after(),
        spot.check_now("k").unwrap().retry_after()
    );
}

#[test]
fn as_many_units_of_each_key_as_the_least_of_the_costs() {
    let limiter = limiter(&["5/min"]);
    let request = Request::new("a").cost(10).and(Request::new("b").cost(2));
    let taken = || limiter.take_up_to_now(&request).unwrap().granted();
    assert_eq!((taken(), at_once(limiter.take_up_to(&request)).unwrap().granted()), (2, 2));
    assert_eq!((taken(), taken()), (1, 0));
    assert_eq!(limiter.peek_now("b").unwrap().remaining(), 0);
    let one = Request::new("c").cost(10).and("d");
    assert_eq!(limiter.take_up_to_now(&one).unwrap().granted(), 1);
}
