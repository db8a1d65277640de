//! Costs of zero, how many units a decision grants, and how many of them can be used at once.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratelimit_memory::{Decision, Limits, ManualClock, MemoryStore, RateLimiter, Request, Timestamp};

type Limiter = RateLimiter<MemoryStore, ManualClock>;

fn limiter(text: &str) -> Limiter {
    let limits: Limits = text.parse().unwrap();
    RateLimiter::new(MemoryStore::new(), limits)
        .with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000)))
}

/// Completes a future that never has to wait.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn a_cost_of_zero_can_be_settled() {
    type Ask = for<'l> fn(&'l Limiter, Request<'l, 'l>) -> Decision<'l>;
    let asks: [(&str, Ask); 8] = [
        ("check", |limiter, request| at_once(limiter.check(request)).unwrap()),
        ("check_now", |limiter, request| limiter.check_now(request).unwrap()),
        ("check_many", |limiter, request| at_once(limiter.check_many([request])).remove(0).unwrap()),
        ("check_many_now", |limiter, request| limiter.check_many_now([request]).remove(0).unwrap()),
        ("reserve", |limiter, request| at_once(limiter.reserve(request, Duration::ZERO)).unwrap()),
        ("reserve_now", |limiter, request| limiter.reserve_now(request, Duration::ZERO).unwrap()),
        ("take_up_to", |limiter, request| at_once(limiter.take_up_to(request)).unwrap()),
        ("take_up_to_now", |limiter, request| limiter.take_up_to_now(request).unwrap()),
    ];
    for text in ["1000/h", "1000/h burst 1000", "1000/h queue burst 1000", "1000/h log", "1000/h; 2000/h log"]
    {
        for (name, ask) in asks {
            let limiter = limiter(text);
            let remaining = || limiter.peek_now("k").unwrap().remaining();
            let free = ask(&limiter, Request::new("k").cost(0));
            assert!(free.allowed() && free.charged() && free.delay().is_zero(), "{name}, {text}");
            assert_eq!((free.granted(), remaining()), (0, 1_000), "{name}, {text}");
            at_once(limiter.settle(&free, 900)).unwrap();
            assert_eq!(remaining(), 100, "{name}, {text}");
            limiter.settle_now(&free, 200).unwrap();
            assert_eq!(remaining(), 800, "{name}, {text}");
            limiter.refund_now(&free);
            assert_eq!(remaining(), 1_000, "{name}, {text}");
        }
        // A peek is no request that is charged later.
        let limiter = limiter(text);
        let peeked = limiter.peek_now("k").unwrap();
        limiter.settle_now(&peeked, 900).unwrap();
        assert!(!peeked.charged() && limiter.peek_now("k").unwrap().remaining() == 1_000, "{text}");
    }
}

#[test]
fn a_decision_knows_how_many_units_it_grants() {
    let banned = limiter("ban 1h after 3 in 10min");
    assert_eq!(banned.take_up_to_now(Request::new("k").cost(5)).unwrap().granted(), 5);
    assert_eq!(at_once(banned.take_up_to(Request::new("k").cost(5))).unwrap().granted(), 5);
    let limits = limiter("7/h; ban 1h after 3 in 10min");
    for granted in [5, 2, 0] {
        assert_eq!(limits.take_up_to_now(Request::new("k").cost(5)).unwrap().granted(), granted);
    }
    // Keys of different costs, of which one is under a ban only.
    let ban: Limits = "ban 1h after 3 in 10min".parse().unwrap();
    let both = Request::new("a").cost(3).and(Request::new("b").cost(4).limits(&ban));
    assert_eq!(limits.check_now(&both).unwrap().granted(), 4);
    assert_eq!(limits.check_now(Request::new("k").cost(5)).unwrap().granted(), 0);
    assert_eq!(limits.check_now(Request::new("c").cost(5)).unwrap().into_owned().granted(), 5);
}

#[test]
fn of_a_queue_few_units_can_be_used_at_once() {
    let queue = limiter("1/s queue burst 60 immediate 5");
    let immediate = |cost| {
        let decision = queue.peek_now(Request::new("k").cost(cost)).unwrap();
        let status = decision.decided_by();
        (status.immediate(), status.remaining())
    };
    assert_eq!(immediate(1), (5, 60));
    for left in (0..5).rev() {
        assert!(queue.check_now("k").unwrap().delay().is_zero());
        assert_eq!(immediate(1), (left, 55 + left));
    }
    assert_eq!(queue.check_now("k").unwrap().delay(), Duration::from_secs(1));
    assert_eq!(immediate(1), (0, 54));
    // Half of a unit is not one.
    for (millis, left) in [(1_000, 0), (500, 0), (500, 1), (3_999, 4), (1, 5)] {
        queue.clock().advance(Duration::from_millis(millis));
        assert_eq!(immediate(1).0, left);
        let delay = queue.would_allow_now(Request::new("k").cost(left.max(1))).unwrap().delay();
        assert_eq!(delay.is_zero(), left > 0);
    }
    // A shorter wait makes the burst smaller, and leaves the immediate units as they are.
    let turn = queue.reserve_now("k", Duration::from_secs(10)).unwrap();
    assert_eq!((turn.decided_by().immediate(), turn.decided_by().remaining()), (4, 14));
    let bucket = limiter("60/min burst 10").check_now("k").unwrap().into_owned();
    assert_eq!(bucket.decided_by().immediate(), 9);
}
