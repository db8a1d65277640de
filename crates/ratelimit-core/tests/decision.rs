//! Decisions: what they report, and how they are used later.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::MapStore;
use ratelimit_core::meter::State;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{
    CheckError, CounterStore, Decision, ErrorKind, LimitStatus, Limits, ManualClock, RateLimiter, Request,
    StoreError, Timestamp,
};

type Limiter = RateLimiter<MapStore, ManualClock>;

fn limits(text: &str) -> Limits {
    text.parse().unwrap()
}

fn limiter(text: &str) -> Limiter {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    RateLimiter::new(MapStore::default(), limits(text)).with_clock(clock)
}

async fn left<'k, 'l>(limiter: &'l Limiter, request: impl Into<Request<'k, 'l>>) -> Vec<u64> {
    limiter.peek(request).await.unwrap().each().map(|limit| limit.remaining()).collect()
}

fn store_calls(limiter: &Limiter) -> u64 {
    limiter.store().asked.load(Ordering::SeqCst)
}

#[tokio::test]
async fn costs_above_the_limit_still_report_the_current_figures() {
    let limiter = limiter("10/s burst 10");
    limiter.check(Request::new("k").cost(8)).await.unwrap();
    let refused = limiter.check(Request::new("k").cost(11)).await.unwrap();
    assert_eq!((refused.allowed(), refused.charged(), refused.retry_after()), (false, false, None));
    assert_eq!((refused.remaining(), refused.reset_after()), (2, Duration::from_millis(800)));
    assert_eq!(store_calls(&limiter), 2, "one trip");
    assert_eq!(refused, limiter.would_allow(Request::new("k").cost(11)).await.unwrap());
    for cost in [12, u64::MAX] {
        let refused = limiter.check(Request::new("k").cost(cost)).await.unwrap();
        assert_eq!((refused.retry_after(), refused.remaining()), (None, 2));
    }
    assert_eq!(left(&limiter, "k").await, [2], "nothing was charged");
}

#[tokio::test]
async fn a_limit_that_never_fits_does_not_distort_the_figures_of_others() {
    let limiter = limiter("10/s; 30/h");
    for _ in 0..3 {
        limiter.check(Request::new("k").cost(10)).await.unwrap();
        limiter.clock().advance(Duration::from_secs(2));
    }
    let refused = limiter.check(Request::new("k").cost(11)).await.unwrap();
    let each: Vec<_> =
        refused.each().map(|limit| (limit.allowed(), limit.remaining(), limit.retry_after())).collect();
    assert_eq!(each[0], (false, 10, None));
    assert_eq!((each[1].0, each[1].1), (false, 0));
    assert!(each[1].2 > Some(Duration::from_secs(60)), "{:?}", each[1]);
    assert_eq!((refused.decided_by().index(), refused.retry_after()), (0, None));
}

#[tokio::test]
async fn in_a_batch_a_request_that_never_fits_charges_nothing() {
    let limiter = limiter("10/min; 7/h log");
    let requests = [Request::new("a").cost(2), Request::new("a").cost(9), Request::new("a").cost(3)];
    let many = limiter.check_many(&requests).await;
    let reported: Vec<_> = many
        .iter()
        .map(|decision| decision.as_ref().unwrap())
        .map(|decision| (decision.allowed(), decision.remaining(), decision.retry_after()))
        .collect();
    let at_once = Some(Duration::ZERO);
    assert_eq!(reported, [(true, 5, at_once), (false, 5, None), (true, 2, at_once)]);
    assert_eq!(left(&limiter, "a").await, [5, 2]);
}

#[tokio::test]
async fn limit_statuses_identify_their_limit() {
    let limiter = limiter("3/s fixed; 5/min burst 4 name search");
    let address = limits("2/h fixed name address");
    let request = || Request::new("ann").cost(2).and(Request::new("192.0.2.1").limits(&address));
    let say = |limit: LimitStatus<'_>| {
        (
            limit.index(),
            limit.key_index(),
            limit.name().map(str::to_owned),
            limit.rule().to_string(),
            limit.cost(),
        )
    };
    let decision = limiter.check(request()).await.unwrap();
    assert_eq!(
        decision.each().map(say).collect::<Vec<_>>(),
        [
            (0, 0, None, "3/s fixed".to_owned(), 2),
            (1, 0, Some("search".to_owned()), "5/min burst 4 name search".to_owned(), 2),
            (2, 1, Some("address".to_owned()), "2/h fixed name address".to_owned(), 1),
        ]
    );
    let refused = limiter.check(request()).await.unwrap();
    assert_eq!(say(refused.decided_by()), (0, 0, None, "3/s fixed".to_owned(), 2));
    limiter.clock().advance(Duration::from_secs(1));
    assert!(limiter.check(request()).await.unwrap().allowed());
    let refused = limiter.check(request()).await.unwrap();
    assert_eq!((refused.decided_by().name(), refused.decided_by().key_index()), (Some("address"), 1));
    let text = format!("{refused:?}");
    assert!(text.contains("rule: 2/h fixed name address") && !text.contains("192.0.2.1"), "{text}");
    assert_eq!(refused.clone().into_owned(), refused);
}

/// The limiter needs the key only during the call.
#[tokio::test]
async fn decisions_outlive_a_temporary_key() {
    let limiter = limiter("10/min");
    let id = 7;
    let decision = limiter.check(&format!("user:{id}")).await.unwrap();
    let other = limiter.check(Request::new(&format!("user:{}", id + 1)).cost(3)).await.unwrap();
    let many = limiter.check_many([&"user:9".to_owned()]).await;
    let waited = limiter.acquire(&format!("user:{}", id + 3)).await.unwrap();
    assert_eq!((decision.remaining(), other.remaining(), waited.remaining()), (9, 7, 9));
    assert!(many[0].is_ok());
    limiter.refund(&decision).await.unwrap();
    limiter.refund(&other).await.unwrap();
    for key in ["user:7", "user:8"] {
        assert_eq!(left(&limiter, key).await, [10]);
    }
}

#[tokio::test]
async fn refunds_return_exactly_what_the_decision_charged() {
    let limiter = limiter("20/min; 30/h burst 30");
    limiter.check(Request::new("other").cost(10)).await.unwrap();
    let one = limiter.check("one").await.unwrap();
    let five = limiter.check(Request::new("one").cost(5)).await.unwrap();
    limiter.settle(&five, 5).await.unwrap();
    assert_eq!(left(&limiter, "one").await, [14, 24], "settled at what it was charged");
    limiter.refund(&one).await.unwrap();
    assert_eq!(left(&limiter, "one").await, [15, 25]);
    assert_eq!(left(&limiter, "other").await, [10, 20]);
    limiter.refund(&five).await.unwrap();
    assert_eq!(left(&limiter, "one").await, [20, 30]);
}

#[tokio::test]
async fn keys_of_any_length_can_be_refunded_and_settled() {
    let limiter = limiter("10/min");
    for length in [0, 1, 3, 4, 7, 8, 9, 16, 17, 32, 33, 47, 48, 49, 500] {
        let key: Vec<u8> = (0..length).map(|place: u16| (place % 251) as u8 + 1).collect();
        let decision = limiter.check(Request::new(&key).cost(4)).await.unwrap();
        let owned: Decision<'static> = decision.clone().into_owned();
        limiter.settle(&decision, 3).await.unwrap();
        assert_eq!(left(&limiter, &key).await, [7], "{length}");
        let taken = limiter.check(&key).await.unwrap().into_owned();
        limiter.refund(&taken).await.unwrap();
        assert_eq!(left(&limiter, &key).await, [7], "{length}");
        assert_eq!(owned, decision);
    }
}

#[tokio::test]
async fn owned_decisions_outlive_their_limits_and_limiter() {
    let store = Arc::new(MapStore::default());
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let make = |text: &str| {
        RateLimiter::new(store.clone(), limits(text)).with_clock(clock.clone()).with_namespace("api")
    };
    let old = make("10/min; 100/h");
    let plan = limits("50/min burst 20 name plan");
    let request = Request::new("ann").cost(4).and(Request::new("bob").cost(6).limits(&plan));
    let decision = old.check(request).await.unwrap().into_owned();
    drop((old, plan));
    // Another limiter on the same store, with another namespace and other limits.
    let new = RateLimiter::new(store.clone(), limits("1/s")).with_clock(clock.clone());
    tokio::spawn(async move { new.refund(&decision).await }).await.unwrap().unwrap();
    let look = make("10/min; 100/h");
    let plan = limits("50/min burst 20 name plan");
    let now = look.peek(Request::new("ann").and(Request::new("bob").limits(&plan))).await.unwrap();
    assert_eq!(now.each().map(|limit| limit.remaining()).collect::<Vec<_>>(), [10, 100, 20]);
}

/// Limits may live longer than necessary.
#[test]
fn lifetimes_can_be_shortened() {
    fn of_decisions<'s>(decision: Decision<'static>, _: &'s Limits) -> Decision<'s> {
        decision
    }
    fn of_requests<'s>(request: Request<'static, 'static>, _: &'s Limits) -> Request<'s, 's> {
        request
    }
    let _ = (of_decisions, of_requests);
}

/// A decision that is no longer used does not keep its limiter borrowed.
#[tokio::test]
async fn a_limiter_can_be_moved_after_its_last_decision_was_used() {
    let limiter = limiter("10/min");
    let decision = limiter.check(Request::new("a").and("b")).await.unwrap();
    assert!(decision.allowed());
    let moved = limiter;
    assert_eq!(left(&moved, "a").await, [9]);
}

#[tokio::test]
async fn each_limit_is_settled_at_its_own_cost() {
    let limiter = limiter("60/min name requests");
    let tokens = limits("10000/min name tokens");
    let request = Request::new("k").and(Request::new("k").cost(1_000).limits(&tokens));
    let is_of_tokens = |limit: &LimitStatus<'_>| limit.name() == Some("tokens");
    for (used, left_after) in [(400, 9_600), (1_500, 8_100), (1_000, 7_100)] {
        let decision = limiter.check(&request).await.unwrap();
        let units = |limit: LimitStatus<'_>| if is_of_tokens(&limit) { used } else { limit.cost() };
        limiter.settle_each(&decision, units).await.unwrap();
        assert_eq!(left(&limiter, &request).await[1], left_after);
    }
    assert_eq!(left(&limiter, &request).await[0], 57);
    // One key is refunded, another is charged more.
    let both = Request::new("a").cost(5).and(Request::new("b").cost(5));
    let decision = limiter.check(&both).await.unwrap();
    limiter.settle_each(&decision, |limit| if limit.key_index() == 0 { 2_u64 } else { 9 }).await.unwrap();
    assert_eq!(left(&limiter, &both).await, [58, 51]);
}

#[tokio::test]
async fn requests_can_own_their_limits() {
    let limiter = limiter("1/s");
    let decision =
        limiter.check(Request::new("k").limits("5/min; 9/h".parse::<Limits>().unwrap())).await.unwrap();
    assert_eq!(decision.each().map(|limit| limit.remaining()).collect::<Vec<_>>(), [4, 8]);
    limiter.refund(&decision).await.unwrap();
    let both = Request::new("k").and("l").limits(limits("5/min; 9/h"));
    assert_eq!(left(&limiter, both).await, [5, 9, 5, 9]);
}

/// A store that omits verdicts.
#[derive(Debug)]
struct Forgetful;

impl CounterStore for Forgetful {
    fn promises(&self) -> Promises {
        MapStore::default().promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answer = MapStore::default().claim(claims).await?;
        answer.verdicts.pop();
        Ok(answer)
    }

    async fn claim_many(&self, _: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        Vec::new()
    }

    async fn refund(&self, _: Timestamp, _: &[Refund<'_>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn reset(&self, _: Claims<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn missing_verdicts_are_an_error() {
    for text in ["1/s", "1/s staggered", "1/s; 2/min"] {
        let limiter = RateLimiter::new(Forgetful, limits(text));
        let many = limiter.check_many(["a", "b"]).await;
        for answer in many.into_iter().chain([limiter.check("k").await]) {
            assert!(matches!(answer, Err(CheckError::Store(error)) if error.kind() == ErrorKind::Server));
        }
    }
}

/// More units than its limit leave no less of a log, but would take up space.
#[tokio::test]
async fn a_settlement_far_above_the_limit_of_a_log_stores_no_more_than_the_limit() {
    let limiter = limiter("10/h log");
    let decision = limiter.check("k").await.unwrap();
    limiter.settle(&decision, 1_000_000).await.unwrap();
    assert_eq!(left(&limiter, "k").await, [0]);
    let states = limiter.store().states.lock().unwrap();
    let units = states.values().map(|state| match state {
        State::Log(log) => log.units.len(),
        State::Window(_) | State::Bucket(_) => panic!("not a log: {state:?}"),
    });
    assert_eq!(units.collect::<Vec<_>>(), [11]);
}

#[tokio::test]
async fn what_was_used_of_a_charge_beyond_the_limit_of_a_log_stays_in_it() {
    for (used, left_after) in [(50, 0), (10, 0), (4, 6), (0, 10)] {
        let limiter = limiter("10/min log");
        let decision = limiter.charge(Request::new("k").cost(100)).await.unwrap();
        limiter.settle(&decision, used).await.unwrap();
        assert_eq!(left(&limiter, "k").await, [left_after], "{used} used");
    }
}

/// A log keeps no more of a forced charge than its limit, so no more can be given back.
#[tokio::test]
async fn what_is_given_back_of_a_forced_charge_of_a_log_is_not_of_others() {
    let limiter = limiter("100/min log");
    let smaller: Limits = "10/min log".parse().unwrap();
    let forced = limiter.charge(Request::new("k").cost(50).limits(&smaller)).await.unwrap();
    assert!(limiter.check(Request::new("k").cost(60)).await.unwrap().allowed());
    assert_eq!(left(&limiter, "k").await, [30]);
    limiter.refund(&forced).await.unwrap();
    assert_eq!(left(&limiter, "k").await, [40]);
}

#[tokio::test]
async fn renewals_and_releases_of_a_forced_charge_are_of_what_it_holds() {
    let limiter = limiter("100 at once");
    let smaller: Limits = "10 at once".parse().unwrap();
    let forced = limiter.charge(Request::new("k").cost(50).limits(&smaller)).await.unwrap();
    assert!(limiter.check(Request::new("k").cost(60)).await.unwrap().allowed());
    assert_eq!(left(&limiter, "k").await, [30]);
    assert!(limiter.renew(&forced).await.unwrap());
    assert_eq!(left(&limiter, "k").await, [30]);
    limiter.release(&forced).await.unwrap();
    assert_eq!(left(&limiter, "k").await, [40]);
}
