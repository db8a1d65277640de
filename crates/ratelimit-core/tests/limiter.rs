//! The limiter on a store that is a single map: requests, decisions, waiting.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::MapStore;
use ratelimit_core::meter::{MAX_UNITS, Meter};
use ratelimit_core::{
    Acquire, AcquireError, CheckError, Clock, Decision, Key, Limit, LimitError, Limits, ManualClock,
    RateLimiter, Request, Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);

type Limiter = RateLimiter<MapStore, ManualClock>;

fn limits(texts: &[&str]) -> Limits {
    Limits::new(texts.iter().map(|text| text.parse().unwrap())).unwrap()
}

fn limiter(texts: &[&str]) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    (RateLimiter::new(MapStore::default(), limits(texts)).with_clock(clock.clone()), clock)
}

#[tokio::test]
async fn the_limit_that_refuses_longest_decides() {
    let (limiter, clock) = limiter(&["2/s fixed", "3/min fixed", "100/h fixed"]);
    let first = limiter.check("k").await.unwrap();
    assert!(first.allowed() && first.decided_by().index() == 0 && first.remaining() == 1);
    assert!(limiter.check("k").await.unwrap().allowed());
    let refused = limiter.check("k").await.unwrap();
    assert_eq!((refused.decided_by().index(), refused.retry_after()), (0, Some(SECOND)));
    clock.advance(SECOND);
    assert!(limiter.check("k").await.unwrap().allowed());
    let refused = limiter.check("k").await.unwrap();
    assert_eq!((refused.decided_by().index(), refused.limit(), refused.remaining()), (1, 3, 0));
    assert_eq!(refused.retry_after(), Some(59 * SECOND));
    let each: Vec<_> = refused.each().map(|status| (status.allowed(), status.remaining())).collect();
    assert_eq!(each, [(true, 1), (false, 0), (true, 97)]);
}

#[tokio::test]
async fn keys_that_cost_nothing_are_free_when_as_much_is_taken_as_there_is() {
    let (limiter, _) = limiter(&["6/min"]);
    let request = || Request::new("free").cost(0).and(Request::new("paid").cost(10));
    assert_eq!(limiter.take_up_to(request()).await.unwrap().granted(), 6);
    assert_eq!(limiter.take_up_to(request()).await.unwrap().granted(), 0);
    assert_eq!(limiter.peek("free").await.unwrap().remaining(), 6);
}

#[tokio::test]
async fn taking_from_a_banned_key_needs_two_round_trips() {
    let (limiter, _) = limiter(&["100/min", "ban 1h after 1 in 1min"]);
    let request = || Request::new("k").cost(250);
    assert!(!limiter.check(request()).await.unwrap().allowed());
    let before = limiter.store().asked.load(Ordering::SeqCst);
    let refused = limiter.take_up_to(request()).await.unwrap();
    assert_eq!(limiter.store().asked.load(Ordering::SeqCst) - before, 2);
    let costs: Vec<_> = refused.each().map(|limit| limit.cost()).collect();
    assert_eq!((refused.granted(), costs, refused.retry_after()), (0, vec![1, 0], Some(3_600 * SECOND)));
}

#[tokio::test]
async fn naming_a_meter_twice_is_an_error() {
    let (limiter, _) = limiter(&["10/s"]);
    let twice = Request::new("k").and("k");
    let error = limiter.check(&twice).await.unwrap_err();
    assert!(matches!(error, CheckError::Limits(LimitError::SameMeterTwice)), "{error}");
    let mixed = limiter.check_many([Request::new("a"), twice, Request::new("b")]).await;
    assert!(mixed[0].is_ok() && mixed[1].is_err() && mixed[2].is_ok());
}

#[tokio::test]
async fn keys_with_their_own_limits_are_admitted_together_or_not_at_all() {
    let (limiter, _) = limiter(&["1/s"]);
    let (user, address) = (limits(&["5/min name user"]), limits(&["2/min name address"]));
    let ask = |key| Request::new(key).limits(&user).and(Request::new("192.0.2.1").limits(&address));
    assert!(limiter.check(ask("ann")).await.unwrap().allowed());
    assert!(limiter.check(ask("bob")).await.unwrap().allowed());
    let refused = limiter.check(ask("ann")).await.unwrap();
    assert!(!refused.allowed() && refused.decided_by().index() == 1);
    let left = limiter.peek(Request::new("ann").limits(&user)).await.unwrap();
    assert_eq!(left.remaining(), 4, "the refusal charged nothing");
}

#[tokio::test]
async fn namespaces_and_joined_keys_do_not_collide() {
    let store = Arc::new(MapStore::default());
    let clock = ManualClock::at(Timestamp::from_secs(5));
    let one = |namespace: &str| {
        RateLimiter::new(store.clone(), limits(&["1/min"]))
            .with_clock(clock.clone())
            .with_namespace(namespace)
    };
    let (api, login) = (one("api"), one("login"));
    assert!(api.check("k").await.unwrap().allowed());
    assert!(login.check("k").await.unwrap().allowed());
    assert!(!api.check("k").await.unwrap().allowed());
    assert!(api.check(&Key::of(["a/b", "c"])).await.unwrap().allowed());
    assert!(api.check(&Key::of(["a", "b/c"])).await.unwrap().allowed());
}

#[tokio::test]
async fn plans_share_the_count_of_a_key() {
    let (limiter, _) = limiter(&["1/s"]);
    let (free, starter) = (limits(&["3/min"]), limits(&["5/min"]));
    for _ in 0..3 {
        assert!(limiter.check(Request::new("k").limits(&free)).await.unwrap().allowed());
    }
    assert!(!limiter.check(Request::new("k").limits(&free)).await.unwrap().allowed());
    let upgraded = limiter.check(Request::new("k").limits(&starter)).await.unwrap();
    assert_eq!((upgraded.allowed(), upgraded.remaining()), (true, 1));
    let downgraded = limiter.check(Request::new("k").limits(&free)).await.unwrap();
    assert_eq!((downgraded.allowed(), downgraded.remaining()), (false, 0));
}

#[tokio::test]
async fn an_estimate_is_settled_down_and_up() {
    let (limiter, _) = limiter(&["1000/min burst 1000", "1500/h fixed"]);
    let request = Request::new("k").cost(400);
    let decision = limiter.check(&request).await.unwrap();
    limiter.settle(&decision, 100).await.unwrap();
    let remaining = async |limiter: &Limiter| {
        let now = limiter.peek("k").await.unwrap();
        now.each().map(|status| status.remaining()).collect::<Vec<_>>()
    };
    assert_eq!(remaining(&limiter).await, [900, 1_400]);
    let decision = limiter.check(&request).await.unwrap();
    limiter.settle(&decision, 1_200).await.unwrap();
    assert_eq!(remaining(&limiter).await, [0, 200], "what was used is charged, also beyond the limit");
    let refused = limiter.check(&request).await.unwrap();
    assert!(!refused.allowed());
    limiter.settle(&refused, 900).await.unwrap();
    limiter.refund(&refused).await.unwrap();
    assert_eq!(remaining(&limiter).await, [0, 200], "a refusal has nothing to settle");
}

#[tokio::test]
#[cfg(feature = "calendar")]
async fn what_was_used_beyond_the_estimate_counts_in_the_present_month() {
    let (limiter, clock) = limiter(&["1000/month", "1000/30d fixed"]);
    let left = async || {
        let now = limiter.peek("k").await.unwrap();
        now.each().map(|limit| limit.remaining()).collect::<Vec<_>>()
    };
    // The 31st of January, 23:59:59. A window of 30 days ends with it as well.
    let january = Timestamp::from_secs(1_801_439_999);
    clock.set(january);
    let request = Request::new("k").cost(10);
    let (more, less) = (limiter.check(&request).await.unwrap(), limiter.check(&request).await.unwrap());
    clock.advance(SECOND);
    limiter.settle(&more, 500).await.unwrap();
    limiter.settle(&less, 3).await.unwrap();
    assert_eq!(left().await, [1_000 - 490; 2]);
    clock.set(january);
    assert_eq!(left().await[0], 1_000 - 10 - 3, "the rest returned to January");
}

#[tokio::test]
async fn settling_more_than_a_meter_counts_leaves_what_was_used() {
    let (limiter, _) = limiter(&["100/min fixed", "200/min bucket"]);
    // The longest debt of a bucket is not a whole number of units: what is left of it counts as one more.
    for (cost, of_bucket) in [(10_000_000_000, 190), (2_000_000_000_000_000, 189)] {
        let decision = limiter.charge(Request::new("k").cost(cost)).await.unwrap();
        limiter.settle(&decision, 10).await.unwrap();
        let now = limiter.peek("k").await.unwrap();
        let left: Vec<_> = now.each().map(|status| status.remaining()).collect();
        assert_eq!(left, [90, of_bucket], "{cost}");
        limiter.reset("k").await.unwrap();
    }
}

#[tokio::test]
async fn a_late_answer_is_not_blamed_on_other_waiters() {
    let (limiter, _) = limiter(&["10/s"]);
    let text = |decision: Decision<'_>| AcquireError::Deadline(decision.into_owned()).to_string();
    assert!(text(limiter.check("k").await.unwrap()).contains("the store answered after the deadline"));
    assert!(text(limiter.peek("k").await.unwrap()).contains("others that came earlier"));
}

#[tokio::test]
async fn a_peek_and_a_cost_of_zero_answer_alike_and_charge_nothing() {
    let (limiter, _) = limiter(&["3/min", "5/min log"]);
    limiter.check("k").await.unwrap();
    let peek = limiter.peek("k").await.unwrap();
    let zero = limiter.check(Request::new("k").cost(0)).await.unwrap();
    assert_eq!(peek.each().collect::<Vec<_>>(), zero.each().collect::<Vec<_>>());
    assert_eq!((peek.allowed(), peek.remaining(), peek.charged()), (true, 2, false));
    assert!(!limiter.would_allow(Request::new("k").cost(3)).await.unwrap().allowed());
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn reset_forgets_one_key_and_no_other() {
    let (limiter, _) = limiter(&["1/min", "1/h log"]);
    for key in ["k", "k*", "kk"] {
        assert!(limiter.check(key).await.unwrap().allowed());
    }
    limiter.reset("k*").await.unwrap();
    assert!(!limiter.check("k").await.unwrap().allowed());
    assert!(limiter.check("k*").await.unwrap().allowed());
    assert!(!limiter.check("kk").await.unwrap().allowed());
}

/// Advances the clock whenever all tasks sleep, until `tasks` are done.
async fn run_the_clock<T>(clock: &ManualClock, tasks: &[tokio::task::JoinHandle<T>], step: Duration) {
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        let waiting = tasks.iter().filter(|task| !task.is_finished()).count();
        for _ in 0..1_000 {
            if clock.sleepers() >= waiting {
                break;
            }
            tokio::task::yield_now().await;
        }
        clock.advance(step);
    }
}

#[tokio::test]
async fn waiters_never_exceed_the_limit() {
    let (limiter, clock) = limiter(&["5/s log"]);
    let (limiter, start) = (Arc::new(limiter), clock.now());
    let admitted = Arc::new(AtomicU64::new(0));
    let waiters: Vec<_> = (0..40)
        .map(|_| {
            let (limiter, admitted) = (limiter.clone(), admitted.clone());
            tokio::spawn(async move {
                let options = Acquire::default().jitter(Duration::from_millis(300));
                let decision = limiter.acquire_with("k", options).await.unwrap();
                assert!(decision.allowed());
                admitted.fetch_add(1, Ordering::SeqCst);
                decision.now()
            })
        })
        .collect();
    run_the_clock(&clock, &waiters, Duration::from_millis(37)).await;
    let mut instants = Vec::new();
    for waiter in waiters {
        instants.push(waiter.await.unwrap());
    }
    instants.sort();
    assert_eq!(admitted.load(Ordering::SeqCst), 40);
    for window in instants.windows(6) {
        assert!(
            window[5].since(window[0]) > SECOND,
            "six within a second after {:?}",
            window[0].since(start)
        );
    }
}

#[tokio::test]
async fn a_queue_gives_each_waiter_its_turn() {
    let (limiter, clock) = limiter(&["10/s queue burst 20"]);
    let (limiter, start) = (Arc::new(limiter), clock.now());
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let (limiter, clock) = (limiter.clone(), clock.clone());
            tokio::spawn(async move {
                limiter.acquire("k").await.unwrap();
                clock.now()
            })
        })
        .collect();
    run_the_clock(&clock, &waiters, Duration::from_millis(10)).await;
    let mut released = Vec::new();
    for waiter in waiters {
        released.push(waiter.await.unwrap().since(start).as_millis());
    }
    released.sort_unstable();
    let even: Vec<u128> = (0..20).map(|turn| turn * 100).collect();
    assert_eq!(released, even);
}

#[tokio::test]
async fn waits_beyond_the_deadline_fail_immediately() {
    let (limiter, clock) = limiter(&["1/min log", "2/min queue burst 2 name q"]);
    let queue = limits(&["2/min queue burst 2 name q2"]);
    let soon = Acquire::default().timeout(59 * SECOND);
    limiter.acquire("k").await.unwrap();
    let error = limiter.acquire_with("k", soon).await.unwrap_err();
    assert!(
        matches!(&error, AcquireError::Deadline(decision) if decision.retry_after() > Some(59 * SECOND)),
        "{error}"
    );
    assert_eq!(clock.sleepers(), 0);

    // In a queue, a turn that would be too late is not taken.
    let soon = Acquire::default().timeout(29 * SECOND);
    let request = Request::new("k").limits(&queue);
    limiter.acquire_with(&request, soon).await.unwrap();
    let error = limiter.acquire_with(&request, soon).await.unwrap_err();
    assert!(matches!(&error, AcquireError::Deadline(decision) if !decision.allowed()), "{error}");
    assert_eq!(limiter.peek(&request).await.unwrap().remaining(), 1, "its turn is still free");

    let error = limiter.acquire(Request::new("k").cost(3)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Never(_)), "{error}");
}

#[tokio::test]
async fn retry_after_suffices_and_a_nanosecond_less_does_not() {
    let all = [
        "7/s",
        "7/s fixed",
        "7/s precision 100ms",
        "7/s precision 100ms strict",
        "7/s log",
        "7/s bucket",
        "7/s leaky",
    ];
    for texts in all.iter().map(std::slice::from_ref).chain([&all[..], &["7/s queue", "11/min"]]) {
        let (limiter, clock) = limiter(texts);
        clock.advance(Duration::from_nanos(123_456_789));
        for cost in [1, 2, 3, 1, 7, 5, 4, 7] {
            let request = Request::new("k").cost(cost);
            let decision = limiter.check(&request).await.unwrap();
            let wait = decision.retry_after().unwrap();
            if decision.allowed() {
                clock.advance(Duration::from_nanos(34_567_891));
                continue;
            }
            clock.advance(wait - Duration::from_nanos(1));
            let early = limiter.would_allow(&request).await.unwrap();
            assert_eq!(
                (early.allowed(), early.retry_after()),
                (false, Some(Duration::from_nanos(1))),
                "{texts:?}"
            );
            clock.advance(Duration::from_nanos(1));
            assert!(limiter.check(&request).await.unwrap().allowed(), "{texts:?} cost {cost} after {wait:?}");
        }
    }
}

/// What each limit says: whether it admits, what is left, and when to ask again.
async fn reported(limiter: &Limiter) -> Vec<(bool, u64, Option<Duration>)> {
    let decision = limiter.check("k").await.unwrap();
    decision.each().map(|limit| (limit.allowed(), limit.remaining(), limit.retry_after())).collect()
}

#[tokio::test]
async fn a_key_that_is_refused_too_often_is_banned_for_longer_each_time() {
    let (limiter, clock) = limiter(&["1/s log", "ban 1min after 2 in 1h growing 3 up to 5min"]);
    let now = Some(Duration::ZERO);
    for minutes in [1, 3, 5, 5] {
        let ban = minutes * 60 * SECOND;
        assert_eq!(reported(&limiter).await, [(true, 0, now), (true, MAX_UNITS, now)]);
        assert_eq!(reported(&limiter).await[1], (true, MAX_UNITS, now), "the first refusal");
        assert_eq!(reported(&limiter).await[1], (false, 0, Some(ban)), "the second");
        clock.advance(ban - Duration::from_nanos(1));
        let refused = limiter.check("k").await.unwrap();
        let (status, left) = (refused.decided_by(), Duration::from_nanos(1));
        assert_eq!((status.limit(), status.remaining(), status.reset_after()), (MAX_UNITS, 0, left));
        clock.advance(left);
    }
    let (alone, _) = self::limiter(&["ban 1min after 2 in 1h"]);
    assert_eq!(reported(&alone).await, [(true, MAX_UNITS, now)], "alone it has nothing to count");
}

/// A clock that goes on by a millisecond whenever it is read.
#[derive(Clone, Debug)]
struct Ticking(Arc<AtomicU64>);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_ban_that_begins_later_than_the_request_is_told_for_exactly_its_length() {
    let limiter = RateLimiter::new(MapStore::default(), limits(&["1/d log", "ban 600s after 10 in 1h"]))
        .with_clock(Ticking(Arc::default()));
    assert!(limiter.check("k").await.unwrap().allowed());
    for _ in 1..10 {
        assert!(
            !limiter
                .check("k")
                .await
                .unwrap()
                .each()
                .any(|status| status.rule().is_ban() && !status.allowed())
        );
    }
    let tenth = limiter.check("k").await.unwrap();
    let ban = tenth.each().last().unwrap();
    assert_eq!((ban.allowed(), ban.retry_after()), (false, Some(600 * SECOND)));
    let next = limiter.check("k").await.unwrap();
    assert!(next.each().last().unwrap().retry_after().unwrap() < 600 * SECOND);
}

#[tokio::test]
async fn refusals_during_a_ban_do_not_count_towards_another_ban() {
    let both = ["5/min fixed", "ban 30s after 3 in 1min name short", "ban 1d after 5 in 1h name long"];
    let (limiter, clock) = limiter(&both);
    let bans = async |requests: usize| {
        let mut bans = Vec::new();
        for _ in 0..requests {
            bans = reported(&limiter).await[1..].iter().map(|(allowed, ..)| !allowed).collect();
        }
        bans
    };
    assert_eq!(bans(5 + 3 + 7).await, [true, false], "three refusals, and seven more during the ban");
    clock.advance(30 * SECOND);
    assert_eq!(bans(1).await, [false, false], "the fourth refusal that counts");
    assert_eq!(bans(1).await, [false, true], "the fifth");
}

#[tokio::test]
async fn a_check_counts_in_the_window_that_its_limit_has_now() {
    // 8:00 on the 15th of January.
    let begun = 14 * 86_400 + 8 * 3_600;
    let window = |text: &str| text.parse::<Limit>().unwrap().meter_for(b"k");
    let Meter::Window(staggered) = window("1/d fixed staggered") else { panic!("a window") };
    let (limiter, clock) = limiter(&["1/d fixed", "1/d fixed staggered"]);
    reported(&limiter).await;
    let waits: Vec<_> = reported(&limiter).await.into_iter().map(|(.., wait)| wait.unwrap()).collect();
    let left = staggered.segment() - staggered.place(clock.now()).1;
    assert_eq!(waits, [16 * 3_600 * SECOND, Duration::from_nanos(left)]);
    if cfg!(feature = "calendar") {
        let (limiter, _) = self::limiter(&["1/month"]);
        reported(&limiter).await;
        assert_eq!(reported(&limiter).await, [(false, 0, Some((31 * 86_400 - begun) * SECOND))]);
    }
}

#[test]
fn error_messages_suggest_a_fix() {
    let text = |error: Box<dyn std::error::Error>| error.to_string();
    assert!(text(Box::new(LimitError::SameMeterTwice)).contains("different names"));
    assert!(text(Box::new("x".parse::<Limit>().unwrap_err())).contains("a number of units"));
}

#[tokio::test]
async fn a_limiter_without_limits_requires_them_in_each_request() {
    let limiter = RateLimiter::without_limits(MapStore::default());
    let limit: Limit = "1/h".parse().unwrap();
    let nothing = |error: CheckError| {
        assert!(error.to_string().contains("at least one limit is needed for each key"), "{error}");
    };
    nothing(limiter.check("k").await.unwrap_err());
    nothing(limiter.peek("k").await.unwrap_err());
    nothing(limiter.check(Request::new("k").cost(0)).await.unwrap_err());
    nothing(limiter.reset("k").await.unwrap_err());
    let with_limits = Request::new("k").limits(limit.clone());
    let mut answers = limiter.check_many([with_limits, Request::new("k")]).await.into_iter();
    assert!(answers.next().unwrap().unwrap().allowed());
    nothing(answers.next().unwrap().unwrap_err());
    let half = Request::new("other").limits(limit.clone()).and("k");
    nothing(limiter.check(&half).await.unwrap_err());
    nothing(limiter.reset(&half).await.unwrap_err());
    assert!(!limiter.check(Request::new("k").limits(limit)).await.unwrap().allowed());
}

#[tokio::test]
async fn a_cost_of_zero_does_not_wait_for_a_turn() {
    let (limiter, _) = limiter(&["1/s queue burst 60"]);
    assert!(limiter.check(Request::new("k").cost(30)).await.unwrap().allowed());
    let nothing = || Request::new("k").cost(0);
    let in_time = Acquire::default().timeout(Duration::from_secs(1));
    let decisions = [
        limiter.check(nothing()).await.unwrap(),
        limiter.peek("k").await.unwrap(),
        limiter.reserve(nothing(), Duration::from_secs(1)).await.unwrap(),
        limiter.acquire_with(nothing(), in_time).await.unwrap(),
    ];
    assert_eq!(decisions.map(|decision| (decision.allowed(), decision.delay())), [(true, Duration::ZERO); 4]);
    assert_eq!(limiter.would_allow("k").await.unwrap().delay(), Duration::from_secs(30));
}
